package affinity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/internal/plan/affinity"
	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// nodes are two in zone a, two in zone b, and one without a zone.
var nodes = []affinity.Node{
	{Name: "n-a1", Labels: map[string]string{"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r", "gen": "3"}},
	{Name: "n-a2", Labels: map[string]string{"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r", "gen": "abc"}},
	{Name: "n-b1", Labels: map[string]string{"topology.kubernetes.io/zone": "b", "topology.kubernetes.io/region": "r"}},
	{Name: "n-b2", Labels: map[string]string{"topology.kubernetes.io/zone": "b", "topology.kubernetes.io/region": "r"}},
	{Name: "n-x", Labels: map[string]string{"topology.kubernetes.io/region": "r"}},
}

func requires(key string, op corev1.NodeSelectorOperator, values ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}},
	}}}}
}

func zone(values ...string) *corev1.VolumeNodeAffinity {
	return requires(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, values...)
}

func region(values ...string) *corev1.VolumeNodeAffinity {
	return requires(corev1.LabelTopologyRegion, corev1.NodeSelectorOpIn, values...)
}

func TestClassify(t *testing.T) {
	for name, c := range map[string]struct {
		reason       string
		from, to     *corev1.VolumeNodeAffinity
		want         change.Kind
		gained, lost int
	}{
		"AnotherZone":   {"zone b is gained", zone("a"), zone("a", "b"), change.Widen, 2, 0},
		"Region":        {"every node is of the region, the one without zone, too", zone("a"), region("r"), change.Widen, 3, 0},
		"FewerZones":    {"zone a is lost", zone("a", "b"), zone("b"), change.Narrow, 0, 2},
		"Disjoint":      {"nothing is kept", zone("a"), zone("b"), change.Move, 2, 2},
		"NilToZone":     {"what was everywhere is in a zone", nil, zone("a"), change.Narrow, 0, 3},
		"ZoneToNil":     {"what was in a zone is everywhere", zone("a"), nil, change.Widen, 3, 0},
		"Reordered":     {"words make no difference", zone("a", "b"), zone("b", "a"), change.None, 0, 0},
		"SameNodes":     {"today's nodes are the same, tomorrow's need not be", zone("a"), zone("a", "c"), change.Widen, 0, 0},
		"NumericLabels": {"abc and nothing are no numbers", nil, requires("gen", corev1.NodeSelectorOpGt, "2"), change.Narrow, 0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := nodeset.Of(c.from), nodeset.Of(c.to)
			_, gained, lost := affinity.Compare(from, to, nodes)
			if got := affinity.Classify(from, to, nodes); got != c.want || len(gained) != c.gained || len(lost) != c.lost {
				t.Errorf("it is a %s, %d gained, %d lost; want %s, %d, %d: %s", got, len(gained), len(lost), c.want, c.gained, c.lost, c.reason)
			}
		})
	}
}

func TestLabels(t *testing.T) {
	both := map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelTopologyRegion: "r"}
	for name, c := range map[string]struct {
		reason string
		labels map[string]string
		to     *corev1.VolumeNodeAffinity
		how    change.ZoneLabels
		want   map[string]string
	}{
		"SeveralZones": {"a zone label would keep Pods out of zone b", both, zone("a", "b"), change.ZoneLabelsRemove, map[string]string{corev1.LabelTopologyZone: ""}},
		"Joined":       {"the label can list them", both, zone("b", "a"), change.ZoneLabelsJoin, map[string]string{corev1.LabelTopologyZone: "a__b"}},
		"TooLong":      {"a label has 63 characters", both, zone(strings.Repeat("a", 40), strings.Repeat("b", 40)), change.ZoneLabelsJoin, map[string]string{corev1.LabelTopologyZone: "", corev1.LabelTopologyRegion: ""}},
		"OtherZone":    {"one zone has a name", both, zone("b"), change.ZoneLabelsRemove, map[string]string{corev1.LabelTopologyZone: "b"}},
		"Region":       {"all its nodes are of the region", both, region("r"), change.ZoneLabelsRemove, map[string]string{corev1.LabelTopologyZone: ""}},
		"NoLabels":     {"none is made", nil, zone("b"), change.ZoneLabelsJoin, map[string]string{}},
		"Unchanged":    {"order says nothing", map[string]string{corev1.LabelTopologyZone: "b__a"}, zone("a", "b"), change.ZoneLabelsJoin, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}}
			if diff := cmp.Diff(c.want, affinity.Labels(pv, nodeset.Of(c.to), nodes, c.how)); diff != "" {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
		})
	}
}

// TestStarted holds what may be removed against what a kubelet reports.
func TestStarted(t *testing.T) {
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		reason string
		edit   func(*corev1.PodStatus)
		want   bool
	}{
		"Stranded":   {"no sandbox, no container, nothing ever ran", func(*corev1.PodStatus) {}, false},
		"Unseen":     {"the kubelet has not reported", func(s *corev1.PodStatus) { s.StartTime, s.ContainerStatuses = nil, nil }, false},
		"NoStatuses": {"the kubelet has seen it and says nothing of its containers", func(s *corev1.PodStatus) { s.ContainerStatuses = nil }, true},
		"Running":    {"it runs", func(s *corev1.PodStatus) { s.Phase = corev1.PodRunning }, true},
		"Restarted":  {"it ran before", func(s *corev1.PodStatus) { s.ContainerStatuses[0].RestartCount = 1 }, true},
		"Terminated": {"it ran before", func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
		}, true},
		"Container": {"a container was made", func(s *corev1.PodStatus) { s.ContainerStatuses[0].ContainerID = "containerd://x" }, true},
		"Init":      {"an init container runs", func(s *corev1.PodStatus) { s.InitContainerStatuses = []corev1.ContainerStatus{{}} }, true},
		"Sandbox": {"the sandbox is there", func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
		}, true},
		"Address": {"the sandbox has an address", func(s *corev1.PodStatus) { s.PodIP = "10.0.0.1" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{waiting}}}
			c.edit(&p.Status)
			if got := affinity.Started(p); got != c.want {
				t.Errorf("started is %t, want %t: %s", got, c.want, c.reason)
			}
		})
	}
}
