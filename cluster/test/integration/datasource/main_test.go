package datasource

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/cluster/clustertest"
)

// server is the API server of the tests, with Kubernetes' default gates.
var server kubernetes.Interface

func TestMain(m *testing.M) {
	os.Exit(clustertest.Main(m, controlPlane(nil), func(c *clustertest.Cluster) (err error) {
		server, err = kubernetes.NewForConfig(c.RESTConfig())
		return err
	}))
}

// controlPlane is an API server alone: nothing that binds, fills or deletes
// claims is of interest here.
func controlPlane(gates map[string]bool) clustertest.Config {
	return clustertest.Config{
		FeatureGates:             gates,
		WithoutControllerManager: true,
		WithoutScheduler:         true,
	}
}
