package affinity

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sluice-dev/sluice/internal/plan/affinity/change"
	"github.com/sluice-dev/sluice/internal/plan/nodeset"
)

// maxBlockers is how many blockers a status names.
const maxBlockers = 10

// terminalPatience is how long a Pod that has ended still counts, where nothing
// is attached that would tell whether its volume is unmounted.
const terminalPatience = 120 // seconds

// nodeOf returns a node by its name; false if it does not exist.
func (v *view) nodeOf(name string) (Node, bool) {
	i := slices.IndexFunc(v.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return v.Nodes[i], true
}

// outsiders are the Pods and attachments that hold the volume on nodes outside a
// set, sorted.
func (v *view) outsiders(set nodeset.Set) []change.Blocker {
	var out []change.Blocker
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Spec.NodeName == "" || v.admits(set, p.Spec.NodeName) || v.over(p) {
			continue
		}
		message := "runs where the volume will not be reachable"
		switch {
		case p.DeletionTimestamp != nil:
			message = "is ending where the volume will not be reachable"
		case p.Status.Phase == corev1.PodPending:
			message = "is bound to a node where the volume will not be reachable"
		}
		out = append(out, change.Blocker{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Message: message})
	}
	for i := range v.Attachments {
		a := &v.Attachments[i]
		if v.admits(set, a.Spec.NodeName) {
			continue
		}
		out = append(out, change.Blocker{Kind: "VolumeAttachment", Name: a.Name, Node: a.Spec.NodeName, Message: attachedMessage(a)})
	}
	slices.SortFunc(out, func(a, b change.Blocker) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func attachedMessage(a *storagev1.VolumeAttachment) string {
	if a.DeletionTimestamp != nil {
		return "is being detached"
	}
	return "holds the volume on a node where it will not be reachable"
}

// admits says whether a node is in a set. A node that does not exist any more
// has no labels: it is in none but the set of all.
func (v *view) admits(set nodeset.Set, node string) bool {
	n, _ := v.nodeOf(node)
	return set.Has(n.Labels)
}

// over says that a Pod has ended and uses no volume any more. Where the driver
// attaches, the attachment tells that. Where it does not, an ended Pod counts
// until its node, which is alive, has had the time to unmount.
func (v *view) over(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return false
	}
	if v.AttachRequired {
		return true
	}
	node, ok := v.nodeOf(p.Spec.NodeName)
	if !ok {
		return true
	}
	ended := p.CreationTimestamp.Time
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.FinishedAt.After(ended) {
				ended = t.FinishedAt.Time
			}
		}
	}
	return node.Alive && v.Now.Sub(ended).Seconds() >= terminalPatience
}

// unbound are the Pods that have no node yet.
func (v *view) unbound() []*corev1.Pod {
	var out []*corev1.Pod
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Spec.NodeName == "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			out = append(out, p)
		}
	}
	return out
}

// sentence names the first blocker and how many more there are.
func sentence(blockers []change.Blocker) string {
	if len(blockers) == 0 {
		return ""
	}
	b := blockers[0]
	name := b.Name
	if b.Namespace != "" {
		name = b.Namespace + "/" + b.Name
	}
	text := fmt.Sprintf("%s %q on node %q %s", b.Kind, name, b.Node, b.Message)
	if len(blockers) > 1 {
		text += fmt.Sprintf(", and %d more", len(blockers)-1)
	}
	return text
}
