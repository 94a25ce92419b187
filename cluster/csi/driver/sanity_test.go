package driver_test

import (
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"

	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// TestSanity runs the CSI project's own conformance suite, once with file
// systems and once with raw block volumes.
func TestSanity(t *testing.T) {
	requireDisks(t)
	f := start(t, topology.Node{ID: "n-a1", Zone: "a", Region: "r", Generations: []topology.Generation{topology.Gen1, topology.Gen2}})

	config := func(access string) sanity.TestConfig {
		c := sanity.NewTestConfig()
		dir := t.TempDir()
		c.Address = "unix://" + f.socket
		c.TargetPath, c.StagingPath = dir+"/target", dir+"/staging"
		c.TestVolumeAccessType = access
		c.TestVolumeSize = 16 << 20
		c.TestVolumeExpandSize = 32 << 20
		c.TestVolumeParameters = map[string]string{topology.GenerationParameter: "gen1"}
		c.TestVolumeMutableParameters = map[string]string{topology.PlacementParameter: "regional"}
		return c
	}
	// Registered before Test runs all that is registered: the suite's runner
	// can run once in a process.
	block := config("block")
	suite := sanity.GinkgoTest(&block)
	sanity.Test(t, config("mount"))
	suite.Finalize()
}
