package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The parameters that the driver understands. Placement, generation and zone
// may stand in a StorageClass and in a VolumeAttributesClass; the others are
// mutable only.
const (
	PlacementParameter        = "placement"
	GenerationParameter       = "generation"
	ZoneParameter             = "zone"
	MigrationSecondsParameter = "migrationSeconds"
	IOPSParameter             = "iops"

	// sidecarPrefix begins the parameters that side-cars add of their own.
	sidecarPrefix = "csi.storage.k8s.io/"
)

// maxMigration bounds how long a modification may take.
const maxMigration = 24 * time.Hour

// Change is what a set of parameters asks of a volume. Nil fields are left as
// they are.
type Change struct {
	Placement  *Placement
	Generation *Generation
	Zone       *string
	IOPS       *string
	// Duration is how long the move shall take.
	Duration time.Duration
}

// Over returns the wish for a new volume, l, with the change's fields in place
// of its own. Where the volume will be at home is not looked at: Choose does.
func (c Change) Over(l Location) Location {
	if c.Placement != nil {
		l.Placement = *c.Placement
	}
	if c.Generation != nil {
		l.Generation = *c.Generation
	}
	if c.Zone != nil {
		l.Zone = *c.Zone
	}
	return l
}

// Apply returns the location that the change turns l into. nodes are those
// known: a volume moves only to a zone that has one.
func (c Change) Apply(l Location, nodes []Node) (Location, error) {
	if c.Generation != nil {
		l.Generation = *c.Generation
	}
	if c.Zone != nil && *c.Zone != l.Zone {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Zone == *c.Zone })
		if i < 0 {
			return Location{}, fmt.Errorf("zone %q has no node", *c.Zone)
		}
		l.Node, l.Zone, l.Region = "", nodes[i].Zone, nodes[i].Region
	}
	if c.Placement != nil {
		l.Placement = *c.Placement
		home := map[Placement]string{OnNode: l.Node, Zonal: l.Zone, Regional: l.Region}
		if home[l.Placement] == "" {
			return Location{}, fmt.Errorf("placement %q is impossible: it is not known which %s the volume is at home in",
				l.Placement, map[Placement]string{OnNode: "node", Zonal: "zone", Regional: "region"}[l.Placement])
		}
	}
	return l, nil
}

// ParseClass reads the parameters of a StorageClass into the wish that Choose
// fulfils. The volume is zonal and of no generation where they do not say
// otherwise.
func ParseClass(parameters map[string]string) (Location, error) {
	change, err := parse(parameters, PlacementParameter, GenerationParameter, ZoneParameter)
	if err != nil {
		return Location{}, err
	}
	return change.Over(Location{Placement: Zonal}), nil
}

// ParseMutable reads the parameters of a VolumeAttributesClass.
func ParseMutable(parameters map[string]string) (Change, error) {
	return parse(parameters, PlacementParameter, GenerationParameter, ZoneParameter, MigrationSecondsParameter, IOPSParameter)
}

func parse(parameters map[string]string, allowed ...string) (Change, error) {
	var c Change
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		if strings.HasPrefix(key, sidecarPrefix) {
			continue
		}
		if !slices.Contains(allowed, key) {
			return Change{}, fmt.Errorf("parameter %q is unknown: want any of %q", key, allowed)
		}
		if err := c.set(key, parameters[key]); err != nil {
			return Change{}, fmt.Errorf("parameter %q: %w", key, err)
		}
	}
	return c, nil
}

func (c *Change) set(key, value string) error {
	switch key {
	case PlacementParameter:
		p, err := ParsePlacement(value)
		if err != nil {
			return err
		}
		c.Placement = &p
	case GenerationParameter:
		g, err := ParseGeneration(value)
		if err != nil {
			return err
		}
		c.Generation = &g
	case ZoneParameter:
		if value == "" {
			return fmt.Errorf("a zone must have a name")
		}
		c.Zone = &value
	case MigrationSecondsParameter:
		seconds, err := strconv.Atoi(value)
		if err != nil || seconds < 0 || time.Duration(seconds) > maxMigration/time.Second {
			return fmt.Errorf("%q is not a number of seconds from 0 to %d", value, int(maxMigration.Seconds()))
		}
		c.Duration = time.Duration(seconds) * time.Second
	case IOPSParameter:
		if n, err := strconv.Atoi(value); err != nil || n <= 0 {
			return fmt.Errorf("%q is not a positive number", value)
		}
		c.IOPS = &value
	}
	return nil
}
