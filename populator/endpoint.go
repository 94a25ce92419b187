package populator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// Endpoint is where a plugin listens: [Unix] or [MutualTLS].
type Endpoint interface {
	// String tells where, for people.
	String() string

	listen(ctx context.Context) (net.Listener, credentials.TransportCredentials, error)
}

// Unix listens on a unix socket, for a plugin that is a side-car of Sluice's
// manager; the Populator then says spec.plugin.socket. Who may open the socket may
// call: its directory is shared with the manager alone.
//
// A socket that a crash left behind is replaced, one that is in use is not.
func Unix(path string) Endpoint { return unixEndpoint(path) }

type unixEndpoint string

// socketMode lets the group call: the directory of the socket is an emptyDir of
// the Pod, with a group that its containers share.
const socketMode fs.FileMode = 0o660

func (e unixEndpoint) String() string { return "unix:" + string(e) }

func (e unixEndpoint) listen(ctx context.Context) (net.Listener, credentials.TransportCredentials, error) {
	path := string(e)
	if err := os.MkdirAll(filepath.Dir(path), 0o770); err != nil {
		return nil, nil, fmt.Errorf("make directory of socket: %w", err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on socket: %w", err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("set mode of socket: %w", err), l.Close())
	}
	return l, nil, nil
}

// removeStale removes a socket that nobody listens on.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%q exists and is no socket", path)
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("socket %q is in use", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("look at socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}
