package affinity

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// zoneLabels are the labels of a volume that the scheduler's VolumeZone filter
// reads, each with the node label that it is compared with. The filter admits
// nodes without any of them.
var zoneLabels = []string{
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
}

// joint separates the zones in the label of a volume that spans several.
const joint = "__"

// Labels says how the zone and region labels of a volume have to change with
// its affinity: an empty value removes a label. A label stays where it names
// what all reachable nodes have; labels that the volume does not have are not
// made. inTree labels are part of the volume's identity and never change.
func Labels(volume *corev1.PersistentVolume, to nodeset.Set, nodes []Node, how change.ZoneLabels) map[string]string {
	out := map[string]string{}
	for _, key := range zoneLabels {
		have, ok := volume.Labels[key]
		if !ok {
			continue
		}
		values, plain := reached(to, nodes, key)
		want := ""
		switch {
		case plain && len(values) == 1:
			want = values[0]
		case plain && len(values) > 1 && how == change.ZoneLabelsJoin && zonal(key):
			if joined := strings.Join(values, joint); len(joined) <= 63 {
				want = joined
			}
		}
		if want != have && !sameZones(want, have) {
			out[key] = want
		}
	}
	return out
}

func zonal(key string) bool {
	return key == corev1.LabelTopologyZone || key == corev1.LabelFailureDomainBetaZone
}

// reached returns the values that a label has on the nodes of a set, sorted, as
// far as they are all known: by the terms where each names them, else by the
// nodes that exist, if each has the label.
func reached(to nodeset.Set, nodes []Node, key string) (values []string, plain bool) {
	if listed, ok := to.Values(key); ok {
		return listed, true
	}
	seen := sets.New[string]()
	for _, n := range nodes {
		if !to.Has(n.Labels) {
			continue
		}
		v, ok := n.Labels[key]
		if !ok {
			return nil, false
		}
		seen.Insert(v)
	}
	// Nodes of other zones may join where the terms do not name zones; a region
	// is a matter of the whole storage system.
	if zonal(key) {
		return nil, false
	}
	return sets.List(seen), seen.Len() > 0
}

func sameZones(a, b string) bool {
	x, y := sets.New(strings.Split(a, joint)...), sets.New(strings.Split(b, joint)...)
	return x.Equal(y)
}

// carried returns the zone and region labels of a volume.
func carried(volume *corev1.PersistentVolume) map[string]string {
	out := map[string]string{}
	for _, key := range zoneLabels {
		if v, ok := volume.Labels[key]; ok {
			out[key] = v
		}
	}
	return out
}

// patched returns labels after a change of labels.
func patched(have, change map[string]string) map[string]string {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range change {
		if v == "" {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

// back returns the change of labels that restores what was.
func back(have, was map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if was[key] != have[key] {
			out[key] = was[key]
		}
	}
	for key, v := range was {
		if have[key] != v {
			out[key] = v
		}
	}
	return out
}
