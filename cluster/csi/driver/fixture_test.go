package driver_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
	"github.com/sluice-dev/sluice/cluster/csi/driver"
	"github.com/sluice-dev/sluice/cluster/csi/fault"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// requireDisks skips tests that attach and mount where that is not possible.
func requireDisks(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices")
	}
}

// A fixture is a driver under test with one controller and some nodes, as
// separate servers over one state directory.
type fixture struct {
	dir    string
	store  *state.Store
	faults fault.Set
	clock  *clock
	// socket is that of the first node, which serves the controller too.
	socket     string
	controller csi.ControllerClient
	nodes      map[string]csi.NodeClient
}

// start runs the driver for the nodes until the test ends, and then checks that
// nothing is left of it.
func start(t *testing.T, nodes ...topology.Node) *fixture {
	t.Helper()
	dir := t.TempDir()
	store, err := state.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{dir: dir, store: store, faults: fault.In(store), clock: &clock{}, nodes: map[string]csi.NodeClient{}}
	t.Cleanup(func() {
		if err := disk.Release(store.Dir()); err != nil {
			t.Error(err)
		}
	})
	for i, n := range nodes {
		mode := driver.NodeMode
		if i == 0 {
			mode = driver.AllMode
		}
		socket := filepath.Join(dir, n.ID+".sock")
		conn := f.serve(t, mode, n, socket)
		f.nodes[n.ID] = csi.NewNodeClient(conn)
		if i == 0 {
			f.socket, f.controller = socket, csi.NewControllerClient(conn)
		}
	}
	return f
}

// serve runs one process of the driver and connects to it.
func (f *fixture) serve(t *testing.T, mode driver.Mode, n topology.Node, socket string) *grpc.ClientConn {
	t.Helper()
	// Outlives the context of the test, which ends before its clean-up.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d, err := driver.New(ctx, driver.Config{Mode: mode, StateDir: f.store.Dir(), Node: n, Version: "test", Now: f.clock.Now})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	l, err := driver.Listen("unix://" + socket)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// clock is a clock that a test may put forward.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
}

// Now returns the clock's time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}
