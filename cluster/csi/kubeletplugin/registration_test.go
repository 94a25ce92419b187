package kubeletplugin

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// serve runs a registration as a kubelet would find it.
func serve(t *testing.T) (kubelet registration.RegistrationClient, stop context.CancelFunc, served <-chan error) {
	t.Helper()
	socket := SocketPath(t.TempDir(), "driver.example")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	r := New("driver.example", "/run/csi.sock", slog.New(slog.DiscardHandler))
	go func() { result <- r.Serve(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = conn.Close()
	})
	return registration.NewRegistrationClient(conn), stop, result
}

func ended(t *testing.T, served <-chan error) error {
	t.Helper()
	select {
	case err := <-served:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the registration did not end in 10 s")
		return nil
	}
}

func TestRegistered(t *testing.T) {
	kubelet, stop, served := serve(t)
	info, err := kubelet.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetType() != registration.CSIPlugin || info.GetName() != "driver.example" || info.GetEndpoint() != "/run/csi.sock" {
		t.Errorf("want a CSI plugin, its name and its socket, got %v", info)
	}
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := ended(t, served); err != nil {
		t.Errorf("want a quiet end, got %v", err)
	}
}

func TestRefused(t *testing.T) {
	kubelet, _, served := serve(t)
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "topology value collision"}); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, served); err == nil || !strings.Contains(err.Error(), "topology value collision") {
		t.Errorf("want the kubelet's reason, got %v", err)
	}
}
