// Command sluice-csi-sim is one process of the CSI driver that Sluice's tests
// and demos run on: its controller, or the node service of one node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-dev/sluice/cluster/csi/driver"
	"github.com/sluice-dev/sluice/cluster/csi/kubeletplugin"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// version is set by the linker.
var version = "dev"

type options struct {
	mode, endpoint, stateDir string
	node, zone, region       string
	generations              string
	registrationDir          string
	verbose                  bool
}

func main() {
	var o options
	flag.StringVar(&o.mode, "mode", "all", "services to offer: controller, node or all")
	flag.StringVar(&o.endpoint, "endpoint", "", "socket of the CSI services, unix:///path")
	flag.StringVar(&o.stateDir, "state-dir", "", "folder shared by all processes of the driver")
	flag.StringVar(&o.node, "node-id", "", "name of the node served")
	flag.StringVar(&o.zone, "zone", "", "zone of the node served")
	flag.StringVar(&o.region, "region", "", "region of the node served")
	flag.StringVar(&o.generations, "generation", "", "disk generations that the node can attach, separated by commas: gen1, gen2")
	flag.StringVar(&o.registrationDir, "kubelet-registration-dir", "", "folder where the kubelet looks for plugins; empty: do not register")
	flag.BoolVar(&o.verbose, "verbose", false, "log calls that only read, too")
	flag.Parse()

	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, log); err != nil {
		log.Error("sluice-csi-sim ends", "error", err)
		os.Exit(1)
	}
}

// run serves until the context ends or one of the services does.
func run(ctx context.Context, o options, log *slog.Logger) error {
	mode, err := driver.ParseMode(o.mode)
	if err != nil {
		return err
	}
	if o.endpoint == "" || o.stateDir == "" {
		return errors.New("--endpoint and --state-dir are required")
	}
	if mode == driver.ControllerMode && o.registrationDir != "" {
		return errors.New("--kubelet-registration-dir is for a node service, not for --mode=controller")
	}
	generations, err := topology.ParseGenerations(o.generations)
	if err != nil {
		return fmt.Errorf("--generation: %w", err)
	}
	d, err := driver.New(ctx, driver.Config{
		Mode:     mode,
		StateDir: o.stateDir,
		Node:     topology.Node{ID: o.node, Zone: o.zone, Region: o.region, Generations: generations},
		Version:  version,
		Log:      log,
	})
	if err != nil {
		return err
	}
	listener, err := driver.Listen(o.endpoint)
	if err != nil {
		return err
	}
	log.Info("serving", "mode", o.mode, "endpoint", listener.Addr().String(), "node", o.node)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var services sync.WaitGroup
	results := make(chan error, 2)
	serve := func(f func(context.Context) error) {
		services.Go(func() {
			results <- f(ctx)
			cancel() // the services live and die together
		})
	}
	serve(func(ctx context.Context) error { return d.Serve(ctx, listener) })
	if o.registrationDir != "" {
		socket := strings.TrimPrefix(listener.Addr().String(), "unix:")
		registrations, err := driver.Listen(kubeletplugin.SocketPath(o.registrationDir, driver.Name))
		if err != nil {
			results <- err
			cancel()
		} else {
			r := kubeletplugin.New(driver.Name, socket, log)
			serve(func(ctx context.Context) error { return r.Serve(ctx, registrations) })
		}
	}
	services.Wait()
	close(results)
	var errs []error
	for err := range results {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
