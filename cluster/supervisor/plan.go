package supervisor

import (
	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/controlplane"
	"github.com/sluice-dev/sluice/cluster/network"
	"github.com/sluice-dev/sluice/cluster/pki"
)

// plan makes network and certificates and returns what has to be started.
func (s *supervisor) plan(*component.Group) ([]component.Unit, error) {
	if err := network.SetUp(s.run.Network, len(s.run.Config.Nodes)); err != nil {
		return nil, err
	}
	authority, err := pki.New(s.layout.PKI())
	if err != nil {
		return nil, err
	}
	cp := controlplane.New(s.run, s.layout, config.InsideBin, authority)
	if err := authority.Kubeconfig(s.layout.Kubeconfig(), cp.Server(), s.run.Config.Name, "admin", "system:masters"); err != nil {
		return nil, err
	}
	return cp.Units()
}
