package clustertest

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startForTest starts a cluster that ends with the test.
func startForTest(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	begin := time.Now()
	c, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("cluster %q ready after %s", c.Name, time.Since(begin).Round(10*time.Millisecond))
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestControlPlane(t *testing.T) {
	c := startForTest(t, Config{})
	client := kubernetes.NewForConfigOrDie(c.RESTConfig())
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(version.GitVersion)
	// The controller manager makes this one.
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, err := client.CoreV1().ServiceAccounts("default").Get(deadline, "default", metav1.GetOptions{})
		if err == nil {
			break
		}
		if deadline.Err() != nil {
			t.Fatal(err)
		}
	}
}
