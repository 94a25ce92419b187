// Package topology says where nodes and disks are and which node reaches
// which disk. It is pure: both the controller and the node services decide
// with it, so they cannot disagree.
package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The topology keys that the driver reports for its nodes. A node that
// supports several disk generations carries one key for each, because a
// topology key holds a single value: a node without a generation lacks the
// key, as an old machine would.
const (
	ZoneKey             = "topology.kubernetes.io/zone"
	RegionKey           = "topology.kubernetes.io/region"
	NodeKey             = "sim.csi.sluice.dev/node"
	generationKeyPrefix = "sim.csi.sluice.dev/"
	supported           = "true"
)

// Generation is a generation of disks. The empty generation is a plain disk
// that every node can attach.
type Generation string

// The disk generations there are.
const (
	AnyGeneration Generation = ""
	Gen1          Generation = "gen1"
	Gen2          Generation = "gen2"
)

// Generations lists every generation that a node may have to support.
var Generations = []Generation{Gen1, Gen2}

// Key returns the topology key of nodes that support the generation.
func (g Generation) Key() string { return generationKeyPrefix + string(g) }

// ParseGeneration returns the generation of that name.
func ParseGeneration(name string) (Generation, error) {
	if g := Generation(name); slices.Contains(Generations, g) {
		return g, nil
	}
	return AnyGeneration, fmt.Errorf("generation %q is unknown: want one of %q", name, Generations)
}

// ParseGenerations splits a comma-separated list of generations. The empty
// list is a node that attaches plain disks only.
func ParseGenerations(list string) ([]Generation, error) {
	var generations []Generation
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		g, err := ParseGeneration(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(generations, g) {
			generations = append(generations, g)
		}
	}
	slices.Sort(generations)
	return generations, nil
}

// Node is a machine that disks are attached to.
type Node struct {
	ID          string       `json:"id"`
	Zone        string       `json:"zone,omitempty"`
	Region      string       `json:"region,omitempty"`
	Generations []Generation `json:"generations,omitempty"`
}

// Segments returns what the node reports of itself: the labels that the
// kubelet puts on the Node.
func (n Node) Segments() map[string]string {
	segments := map[string]string{NodeKey: n.ID}
	if n.Zone != "" {
		segments[ZoneKey] = n.Zone
	}
	if n.Region != "" {
		segments[RegionKey] = n.Region
	}
	for _, g := range n.Generations {
		segments[g.Key()] = supported
	}
	return segments
}

// Has says whether the node carries every one of the segments.
func (n Node) Has(segments map[string]string) bool {
	own := n.Segments()
	for key, value := range segments {
		if own[key] != value {
			return false
		}
	}
	return true
}

// Placement is how far a disk reaches.
type Placement string

// The placements there are, the narrowest first.
const (
	OnNode   Placement = "node"
	Zonal    Placement = "zonal"
	Regional Placement = "regional"
)

// Placements lists every placement.
var Placements = []Placement{OnNode, Zonal, Regional}

// ParsePlacement returns the placement of that name.
func ParsePlacement(name string) (Placement, error) {
	if p := Placement(name); slices.Contains(Placements, p) {
		return p, nil
	}
	return "", fmt.Errorf("placement %q is unknown: want one of %q", name, Placements)
}

// Location is where a disk is. Node, Zone and Region are its home and are all
// kept whatever the placement, so that a regional disk can become zonal again.
type Location struct {
	Placement  Placement  `json:"placement"`
	Generation Generation `json:"generation,omitempty"`
	Node       string     `json:"node,omitempty"`
	Zone       string     `json:"zone,omitempty"`
	Region     string     `json:"region,omitempty"`
}

// Segments returns the accessible topology of a disk at the location: the
// nodes that carry all of these segments reach it. Without any segment, every
// node does.
func (l Location) Segments() map[string]string {
	segments := map[string]string{}
	var key, value string
	switch l.Placement {
	case OnNode:
		key, value = NodeKey, l.Node
	case Zonal:
		key, value = ZoneKey, l.Zone
	case Regional:
		key, value = RegionKey, l.Region
	}
	if value != "" {
		segments[key] = value
	}
	if l.Generation != AnyGeneration {
		segments[l.Generation.Key()] = supported
	}
	return segments
}

// ReachedBy says whether the node can attach a disk at the location.
func (l Location) ReachedBy(n Node) bool { return n.Has(l.Segments()) }

// String describes the location for messages.
func (l Location) String() string {
	segments := l.Segments()
	if len(segments) == 0 {
		return "everywhere"
	}
	parts := make([]string, 0, len(segments))
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		parts = append(parts, key+"="+segments[key])
	}
	return strings.Join(parts, ",")
}

// ErrNoPlace is returned by Choose when none of the offered topologies can
// hold the disk.
var ErrNoPlace = errors.New("no offered topology can hold the volume")

// Choose picks the home of a new disk among the topologies that the cluster
// offers, in order of preference. want says what the disk shall be; its home
// fields, where set, are conditions. nodes are those known, which fill in what
// an offer leaves open: an offer of a zone says nothing about its region.
func Choose(want Location, offers []map[string]string, nodes []Node) (Location, error) {
	if len(offers) == 0 {
		for _, n := range nodes {
			offers = append(offers, n.Segments())
		}
	}
	if len(offers) == 0 {
		return want, nil
	}
	completed := make([]Location, 0, len(offers))
	zones, regions := false, false
	for _, offer := range offers {
		l := Location{Placement: want.Placement, Generation: want.Generation}
		l.Node, l.Zone, l.Region = offer[NodeKey], offer[ZoneKey], offer[RegionKey]
		l = l.complete(offer, nodes)
		zones = zones || l.Zone != ""
		regions = regions || l.Region != ""
		completed = append(completed, l)
	}
	for i, l := range completed {
		switch {
		case want.Zone != "" && l.Zone != want.Zone:
		case !offersGeneration(offers[i], want.Generation):
		case want.Placement == OnNode && l.Node == "":
		case want.Placement == Zonal && l.Zone == "" && zones:
		case want.Placement == Regional && l.Region == "" && regions:
		default:
			return l, nil
		}
	}
	return Location{}, fmt.Errorf("place a %s volume of generation %q among %d topologies: %w",
		want.Placement, want.Generation, len(offers), ErrNoPlace)
}

// complete fills in the home fields that the offer leaves open, from the first
// node that fits the offer and has the disk's generation.
func (l Location) complete(offer map[string]string, nodes []Node) Location {
	for _, n := range nodes {
		if !n.Has(offer) || (l.Generation != AnyGeneration && !slices.Contains(n.Generations, l.Generation)) {
			continue
		}
		if l.Node == "" {
			l.Node = n.ID
		}
		if l.Zone == "" {
			l.Zone = n.Zone
		}
		if l.Region == "" {
			l.Region = n.Region
		}
		return l
	}
	return l
}

// offersGeneration says whether disks of the generation can be put into the
// offered topology. An offer that names no generation at all, such as a class's
// allowed zone, leaves the choice to the driver.
func offersGeneration(offer map[string]string, want Generation) bool {
	if want == AnyGeneration || offer[want.Key()] == supported {
		return true
	}
	if _, node := offer[NodeKey]; node {
		return false
	}
	for _, g := range Generations {
		if _, named := offer[g.Key()]; named {
			return false
		}
	}
	return true
}
