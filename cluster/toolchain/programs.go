// Package toolchain builds the programs that a cluster consists of from the Go
// modules that cluster/go.mod pins, and skips those that are up to date.
package toolchain

import (
	"os"
	"path/filepath"

	"github.com/sluice-dev/sluice/cluster/config"
)

// Program is one binary to build.
type Program struct {
	// Name is the binary's file name.
	Name string
	// Package is its import path.
	Package string
	// Tags are build tags.
	Tags []string
	// Cgo is true if it needs a C compiler.
	Cgo bool
	// LinkerFlags stamp the version.
	LinkerFlags []string
}

// Programs returns everything that a cluster runs.
func Programs() []Program {
	version := kubernetesVersion()
	programs := []Program{
		{Name: "etcd", Package: "go.etcd.io/etcd/server/v3"},
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"} {
		programs = append(programs, Program{Name: name, Package: "k8s.io/kubernetes/cmd/" + name, LinkerFlags: version})
	}
	// The file systems that these tags leave out need C libraries, and no
	// cluster here uses them.
	containerd := []string{"no_btrfs", "no_devmapper", "no_zfs"}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		programs = append(programs, Program{Name: name, Package: "github.com/containerd/containerd/v2/cmd/" + name, Tags: containerd})
	}
	return append(programs,
		// Pods have the runtime's default seccomp profile, which takes libseccomp.
		Program{Name: "runc", Package: "github.com/opencontainers/runc", Tags: []string{"seccomp"}, Cgo: true},
		Program{Name: "bridge", Package: "github.com/containernetworking/plugins/plugins/main/bridge"},
		Program{Name: "loopback", Package: "github.com/containernetworking/plugins/plugins/main/loopback"},
		Program{Name: "host-local", Package: "github.com/containernetworking/plugins/plugins/ipam/host-local"},
		Program{Name: "portmap", Package: "github.com/containernetworking/plugins/plugins/meta/portmap"},
		Program{Name: "csi-provisioner", Package: "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"},
		Program{Name: "csi-attacher", Package: "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"},
		Program{Name: "csi-resizer", Package: "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"},
		Program{Name: "csi-snapshotter", Package: "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"},
		Program{Name: "snapshot-controller", Package: "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller"},
		Program{Name: "csi-sanity", Package: "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"},
		Program{Name: "sluice-csi-sim", Package: "github.com/sluice-dev/sluice/cluster/cmd/sluice-csi-sim"},
	)
}

// Missing returns the programs that a folder lacks.
func Missing(bin string) []string {
	var missing []string
	for _, p := range Programs() {
		if _, err := os.Stat(filepath.Join(bin, p.Name)); err != nil {
			missing = append(missing, p.Name)
		}
	}
	return missing
}

// kubernetesVersion returns the linker flags without which the API server has
// no version that clients can read. The build date is fixed, so that the same
// sources give the same binary.
func kubernetesVersion() []string {
	const pkg = "k8s.io/component-base/version."
	var flags []string
	for _, set := range [][2]string{
		{"gitVersion", config.Kubernetes},
		{"gitMajor", config.KubernetesMajor},
		{"gitMinor", config.KubernetesMinor},
		{"gitTreeState", "clean"},
		{"gitCommit", "unknown"},
		{"buildDate", "1970-01-01T00:00:00Z"},
	} {
		flags = append(flags, "-X", pkg+set[0]+"="+set[1])
	}
	return flags
}
