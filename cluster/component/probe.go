package component

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// HTTP returns a probe that is ready when url answers 200. config may be nil
// for plain HTTP.
func HTTP(url string, config *tls.Config) Probe {
	client := &http.Client{
		Timeout:   2 * time.Second,
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return fmt.Errorf("probe %q: %w", url, err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // only read
		if resp.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // only to explain the status
			return fmt.Errorf("%s answers %s: %s", url, resp.Status, body)
		}
		return nil
	}
}

// Socket returns a probe that is ready when something accepts connections on a
// unix socket.
func Socket(path string) Probe {
	return func(ctx context.Context) error {
		d := net.Dialer{Timeout: time.Second}
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// File returns a probe that is ready when a file exists.
func File(path string) Probe {
	return func(context.Context) error {
		_, err := os.Stat(path)
		return err
	}
}
