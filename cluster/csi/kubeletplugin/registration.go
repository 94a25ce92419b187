// Package kubeletplugin makes a CSI node service known to its kubelet: it
// serves the kubelet's registration API on a socket in the folder that the
// kubelet watches, which elsewhere is a side-car's work.
package kubeletplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// csiVersion is the version of the kubelet's API for CSI plugins.
const csiVersion = "1.0.0"

// A Registration is the answer to a kubelet that found the plugin's socket.
type Registration struct {
	registration.UnimplementedRegistrationServer
	driver   string
	endpoint string
	log      *slog.Logger
	refused  chan error
}

// New returns the registration of the driver whose node service listens at the
// endpoint, a socket's path.
func New(driver, endpoint string, log *slog.Logger) *Registration {
	return &Registration{driver: driver, endpoint: endpoint, log: log, refused: make(chan error, 1)}
}

// SocketPath returns where in the kubelet's folder the registration listens.
func SocketPath(dir, driver string) string {
	return filepath.Join(dir, driver+"-reg.sock")
}

// GetInfo tells the kubelet what the plugin is and where its node service
// listens.
func (r *Registration) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.driver,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{csiVersion},
	}, nil
}

// NotifyRegistrationStatus takes the kubelet's verdict. A refusal ends Serve, so
// that it is seen.
func (r *Registration) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.log.Info("registered with the kubelet", "driver", r.driver)
	} else {
		select {
		case r.refused <- fmt.Errorf("the kubelet refused driver %q: %s", r.driver, s.GetError()):
		default: // the first refusal says it all
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// stopGrace is how long the kubelet may take to finish a call at the end.
const stopGrace = time.Second

// Serve answers the kubelet until the context ends or the kubelet refuses the
// plugin.
func (r *Registration) Serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var verdict error
	select {
	case <-ctx.Done():
	case verdict = <-r.refused:
	case err := <-served:
		return fmt.Errorf("serve kubelet registration: %w", err)
	}
	hard := time.AfterFunc(stopGrace, server.Stop)
	defer hard.Stop()
	server.GracefulStop()
	return errors.Join(verdict, <-served)
}
