package populate

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// objectPatience is how long a Secret or ConfigMap that a worker mounts may be
// missing before it is told: it may be in the same manifest.
const objectPatience = 10 * time.Second

// objectMissing says which Secret or ConfigMap the worker waits for, and for how
// long that is not told yet. The manager may read no Secret, so it believes what
// the kubelet says; the kubelet tries again by itself, at least every two
// minutes, and starts the worker once the object is there.
func (v *view) objectMissing() (message string, wait time.Duration) {
	w := v.worker
	for i := range w.Spec.Volumes {
		kind, name := namedBy(&w.Spec.Volumes[i])
		if kind == "" || !saysMissing(v.WorkerProblem, kind, name) {
			continue
		}
		whose := "the worker"
		if v.fromSource(w.Spec.Volumes[i].Name) {
			whose = fmt.Sprintf("%s %q", v.sourceKind(), v.claim.Spec.DataSourceRef.Name)
		}
		return fmt.Sprintf("%s %q in namespace %q does not exist, and %s needs it; create it, the worker starts by itself within two minutes",
			kind, name, w.Namespace, whose), v.left(objectPatience, w.CreationTimestamp.Time)
	}
	return "", 0
}

// namedBy is the object that a volume of the Pod shows.
func namedBy(volume *corev1.Volume) (kind, name string) {
	switch {
	case volume.Name == v1alpha1.FilesVolume, volume.Name == v1alpha1.TargetVolume:
		return "", ""
	case volume.Secret != nil:
		return "Secret", volume.Secret.SecretName
	case volume.ConfigMap != nil:
		return "ConfigMap", volume.ConfigMap.Name
	}
	return "", ""
}

// saysMissing reads the kubelet's "secret "x" not found".
func saysMissing(p Problem, kind, name string) bool {
	return p.Reason == "FailedMount" && strings.Contains(p.Message, fmt.Sprintf("%s %q not found", strings.ToLower(kind), name))
}

// fromSource says that the source chose what is in a volume of the Pod.
func (v *view) fromSource(volume string) bool {
	if v.Populator == nil || v.Populator.Spec.Worker == nil {
		return false
	}
	for _, s := range v.Populator.Spec.Worker.SourceVolumes {
		if s.Name == volume {
			return true
		}
	}
	return false
}
