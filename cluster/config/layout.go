package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Inside is where a cluster finds its own state within its namespaces. One
// short path for every cluster keeps unix socket paths short and command lines
// alike.
const Inside = "/run/sluice-cluster"

// InsideBin is where a cluster finds its programs within its namespaces.
const InsideBin = Inside + "-bin"

// InsideImages is where a cluster finds its images, and InsideRoot where it
// finds the folder that holds its state folder.
const (
	InsideImages = Inside + "-images"
	InsideRoot   = Inside + "-root"
)

// Layout names the files of one cluster below Dir: the folder on the host, or
// Inside.
type Layout struct {
	// Dir is the cluster's state folder.
	Dir string
}

// Config is the cluster's description in JSON, Config.
func (l Layout) Config() string { return filepath.Join(l.Dir, "config.json") }

// Status is the run's state in JSON, written by the supervisor.
func (l Layout) Status() string { return filepath.Join(l.Dir, "status.json") }

// Kubeconfig is the administrator's; it works on the host and inside.
func (l Layout) Kubeconfig() string { return filepath.Join(l.Dir, "kubeconfig") }

// Logs holds one file per component.
func (l Layout) Logs() string { return filepath.Join(l.Dir, "logs") }

// Log is the log of one component.
func (l Layout) Log(component string) string { return filepath.Join(l.Logs(), component+".log") }

// AuditLog is the API server's audit log.
func (l Layout) AuditLog() string { return filepath.Join(l.Logs(), "audit.jsonl") }

// PKI holds certificates, keys and the components' kubeconfigs.
func (l Layout) PKI() string { return filepath.Join(l.Dir, "pki") }

// Etcd is the data folder of etcd.
func (l Layout) Etcd() string { return filepath.Join(l.Dir, "etcd") }

// StoragePrefix begins the name of the folder that Storage returns.
const StoragePrefix = "sluice-storage-"

// Storage holds the volumes of the simulated storage of the cluster with that
// ID. Its name appears in the backing file of every loop device of the cluster,
// also after the cluster's mounts are gone.
func (l Layout) Storage(id string) string { return filepath.Join(l.Dir, StoragePrefix+id) }

// Scratch is an empty folder that serves as a mount point.
func (l Layout) Scratch() string { return filepath.Join(l.Dir, "scratch") }

// Node holds the state of one node.
func (l Layout) Node(name string) string { return filepath.Join(l.Dir, "nodes", name) }

// WithDefaults fills in what was left out and validates the result. Relative
// folders and the repository are looked up from the working directory.
func (c Config) WithDefaults(randomName func() string) (Config, error) {
	if c.Name == "" {
		c.Name = "test-" + randomName()
	}
	for i := range c.Nodes {
		if c.Nodes[i].Name == "" {
			c.Nodes[i].Name = fmt.Sprintf("node%d", i+1)
		}
	}
	if c.Repository == "" {
		repository, err := findRepository()
		if err != nil {
			return c, err
		}
		c.Repository = repository
	}
	build := os.Getenv(BuildDirVariable)
	setDefault(&build, filepath.Join(c.Repository, ".build"))
	setDefault(&c.BinDir, filepath.Join(build, "bin"))
	setDefault(&c.Root, filepath.Join(build, "clusters"))
	setDefault(&c.ImagesDir, filepath.Join(build, "images"))
	for _, dir := range []*string{&c.BinDir, &c.Root, &c.ImagesDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return c, fmt.Errorf("resolve folder %q: %w", *dir, err)
		}
		*dir = abs
	}
	return c, c.Validate()
}

func setDefault(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// ID tells the cluster apart from every other on the machine, also from one of
// the same name that another checkout runs.
func (c Config) ID() string { return ID(c.Root, c.Name) }

// ID returns the ID of the cluster of that name below root.
func ID(root, name string) string {
	sum := sha256.Sum256([]byte(filepath.Join(root, name)))
	return name + "-" + hex.EncodeToString(sum[:3])
}

// Layout returns the cluster's files as the host sees them.
func (c Config) Layout() Layout { return Layout{Dir: filepath.Join(c.Root, c.Name)} }

// BuildDirVariable names the environment variable that overrides
// <repository>/.build, where programs, images and clusters are kept.
const BuildDirVariable = "SLUICE_BUILD_DIR"

// findRepository looks from the working directory upwards for the first folder
// with the cluster module inside.
func findRepository() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cluster", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: no folder above %q holds cluster/go.mod", wd)
		}
	}
}
