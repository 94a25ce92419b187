// Package driver is the CSI driver: its identity, controller and node services
// over the shared state directory.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/sluice-dev/sluice/cluster/csi/fault"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// Name is the driver's name, the provisioner of its storage classes.
const Name = "sim.csi.sluice.dev"

// Mode says which services a process of the driver offers beside its identity.
type Mode string

// The modes there are.
const (
	ControllerMode Mode = "controller"
	NodeMode       Mode = "node"
	AllMode        Mode = "all"
)

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	switch m := Mode(name); m {
	case ControllerMode, NodeMode, AllMode:
		return m, nil
	}
	return "", fmt.Errorf("mode %q is unknown: want %q, %q or %q", name, ControllerMode, NodeMode, AllMode)
}

// Config is what a process of the driver needs to know.
type Config struct {
	Mode Mode
	// StateDir is shared by all processes of one cluster's driver.
	StateDir string
	// Node is the node served, in the modes that serve one.
	Node topology.Node
	// Version is reported to callers.
	Version string
	// Log takes one line per call. Nil discards.
	Log *slog.Logger
	// Now is the clock that migrations run by. Nil is the real one.
	Now func() time.Time
}

// A Driver is one process of the driver.
type Driver struct {
	mode   Mode
	server *grpc.Server
}

// New prepares a process of the driver: a node makes itself known to the
// controller, a controller cleans up what an interrupted one left.
func New(ctx context.Context, c Config) (*Driver, error) {
	store, err := state.Open(c.StateDir)
	if err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	world := &world{store: store, now: c.Now, log: c.Log}
	hasNode := c.Mode == NodeMode || c.Mode == AllMode
	hasController := c.Mode == ControllerMode || c.Mode == AllMode

	calls := interceptor{world: world, faults: fault.In(store)}
	if hasNode {
		if c.Node.ID == "" {
			return nil, errors.New("a node service needs a node ID")
		}
		if err := store.PutNode(c.Node); err != nil {
			return nil, err
		}
		calls.node = &c.Node
	}
	if hasController {
		if err := store.Sweep(ctx); err != nil {
			return nil, err
		}
	}

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(calls.logged, calls.faulty))
	csi.RegisterIdentityServer(server, &identity{version: c.Version, controller: hasController})
	if hasController {
		csi.RegisterControllerServer(server, &controller{world: world})
	}
	if hasNode {
		csi.RegisterNodeServer(server, &node{world: world, self: c.Node})
	}
	return &Driver{mode: c.Mode, server: server}, nil
}

// world is what the services share: the state, and the time that it is read at.
type world struct {
	store *state.Store
	now   func() time.Time
	log   *slog.Logger
}

// volume returns a volume's record as of now.
func (w *world) volume(id string) (state.Volume, error) {
	v, err := w.store.Volume(id)
	return v.At(w.now()), err
}

// locked returns a volume's record as of now, and holds the volume's lock until
// unlock is called. On an error there is nothing to unlock.
func (w *world) locked(ctx context.Context, id string) (v state.Volume, unlock func(), err error) {
	unlock, err = w.store.Lock(ctx, id)
	if err != nil {
		return state.Volume{}, nil, err
	}
	v, err = w.volume(id)
	if err != nil {
		unlock()
		return state.Volume{}, nil, err
	}
	return v, unlock, nil
}

// node returns a registered node. ok is false for one that is not.
func (w *world) node(id string) (n topology.Node, ok bool, err error) {
	nodes, err := w.store.Nodes()
	for _, n := range nodes {
		if n.ID == id {
			return n, true, nil
		}
	}
	return topology.Node{}, false, err
}

// maxSocketPath is the longest path that fits a Unix socket address.
const maxSocketPath = 107

// Listen opens the socket of an endpoint, "unix:///path" or a path. A socket
// that a killed process left at the path is replaced.
func Listen(endpoint string) (net.Listener, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("listen at %q: want an absolute path, or unix:// before one", endpoint)
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen at %q: the path has %d characters, a socket's may have %d", path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("make socket folder: %w", err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", path, err)
	}
	return l, nil
}

// stopGrace is how long calls going on may take to end when the driver stops.
const stopGrace = 2 * time.Second

// Serve answers calls on the listener until the context ends. Calls still
// waiting then, such as a modification's, are cut off; they are made to be
// repeated.
func (d *Driver) Serve(ctx context.Context, l net.Listener) error {
	stopped := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		hard := time.AfterFunc(stopGrace, d.server.Stop)
		defer hard.Stop()
		d.server.GracefulStop()
	}()
	err := d.server.Serve(l)
	close(done)
	<-stopped
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
