package populator

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// Kind is a kind of source, without its version.
type Kind = schema.GroupKind

// Plugin is what is served: who it is, which sources it fills from, and how. S
// is the Go type of a source.
type Plugin[S any] struct {
	// Name of the plugin, for people: a DNS name of its vendor's, such as
	// "snapshots.vendor.example".
	Name string
	// Version of the plugin, for people. Optional.
	Version string
	// Kinds of sources that it fills from, one at least.
	Kinds []Kind

	// Worker computes the Pod that fills a volume. Exactly one of Worker and
	// Filler is set.
	Worker WorkerComputer[S]
	// Filler has the storage fill a volume.
	Filler Filler[S]
	// Cleaner removes what filling left behind. Optional; only with Filler.
	Cleaner Cleaner
	// Journal is where fills are noted so that they are found again after a
	// crash. Required with Filler.
	Journal Journal

	// Validator judges sources before anything is made for a claim. Optional.
	Validator Validator[S]
	// Primer adds labels and annotations to the claim that a volume is
	// provisioned for. Optional.
	Primer Primer[S]
}

// check says what is wrong with a plugin before it is served.
func (p *Plugin[S]) check() error {
	switch {
	case p.Name == "":
		return errors.New("plugin has no name")
	case len(p.Name) > maxName:
		return fmt.Errorf("plugin name has %d characters, more than %d", len(p.Name), maxName)
	case len(p.Version) > maxVersion:
		return fmt.Errorf("plugin version has %d characters, more than %d", len(p.Version), maxVersion)
	case len(p.Kinds) == 0:
		return errors.New("plugin serves no kind")
	case len(p.Kinds) > maxKinds:
		return fmt.Errorf("plugin serves %d kinds, more than %d", len(p.Kinds), maxKinds)
	case (p.Worker == nil) == (p.Filler == nil):
		return errors.New("plugin needs exactly one of Worker and Filler")
	case p.Filler == nil && p.Cleaner != nil:
		return errors.New("plugin has a Cleaner but no Filler")
	case p.Filler != nil && p.Journal == nil:
		return errors.New("plugin has a Filler but no Journal: a fill must be found again after a crash")
	}
	for _, k := range p.Kinds {
		if k.Group == "" || k.Kind == "" {
			return fmt.Errorf("plugin kind %q needs a group and a kind", k)
		}
	}
	return nil
}

// Bounds of the contract.
const (
	maxName    = 253
	maxVersion = 64
	maxKinds   = 64
)

// info is the plugin's answer to GetInfo.
func (p *Plugin[S]) info() *populatorv1.GetInfoResponse {
	info := &populatorv1.GetInfoResponse{Name: p.Name, Version: p.Version}
	for _, k := range p.Kinds {
		info.SourceKinds = append(info.SourceKinds, &populatorv1.Kind{Group: k.Group, Kind: k.Kind})
	}
	for _, c := range []struct {
		has  bool
		name populatorv1.Capability
	}{
		{p.Worker != nil, populatorv1.Capability_CAPABILITY_COMPUTE_WORKER},
		{p.Filler != nil, populatorv1.Capability_CAPABILITY_FILL},
		{p.Validator != nil, populatorv1.Capability_CAPABILITY_VALIDATE_SOURCE},
		{p.Primer != nil, populatorv1.Capability_CAPABILITY_MUTATE_PRIME},
	} {
		if c.has {
			info.Capabilities = append(info.Capabilities, c.name)
		}
	}
	return info
}
