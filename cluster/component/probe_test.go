package component

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func TestHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ready" {
			http.Error(w, "etcd is missing", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	if err := HTTP(server.URL+"/ready", nil)(t.Context()); err != nil {
		t.Errorf("ready: got %v", err)
	}
	if err := HTTP(server.URL+"/other", nil)(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd is missing") {
		t.Errorf("not ready: got %v, want the answer's text", err)
	}
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := Socket(path)(t.Context()); err == nil {
		t.Error("no socket: got ready")
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Socket(path)(t.Context()); err != nil {
		t.Errorf("socket: got %v", err)
	}
}
