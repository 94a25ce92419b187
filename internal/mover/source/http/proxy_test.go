package http

import (
	nethttp "net/http"
	"testing"
)

func TestProxyFunc(t *testing.T) {
	choose, err := proxyFunc("http://proxy.example:3128", "direct.example,.corp.example,10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"http://files.example/f":       "http://proxy.example:3128",
		"https://files.example/f":      "http://proxy.example:3128",
		"https://direct.example/f":     "",
		"http://sub.corp.example/f":    "",
		"http://10.1.2.3/f":            "",
		"http://notdirect.example.x/f": "http://proxy.example:3128",
	} {
		r, err := nethttp.NewRequestWithContext(t.Context(), nethttp.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := choose(r)
		if err != nil {
			t.Fatal(err)
		}
		if (got == nil) != (want == "") || got != nil && got.String() != want {
			t.Errorf("proxy of %s = %v, want %q", url, got, want)
		}
	}
}
