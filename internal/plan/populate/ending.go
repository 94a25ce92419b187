package populate

import (
	"cmp"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
)

// workerEnding is how a worker failed, by its own words where it left some.
func (v *view) workerEnding(end *corev1.ContainerStateTerminated) ending {
	w := v.worker
	e := ending{reason: v1alpha1.ReasonWorkerFailed}
	e.source, _ = strconv.ParseInt(w.Annotations[AnnotationSourceGeneration], 10, 64)       // 0 is "unknown"
	e.populator, _ = strconv.ParseInt(w.Annotations[AnnotationPopulatorGeneration], 10, 64) // 0 is "unknown"
	if end != nil && end.ExitCode != 0 {
		e.exitCode = ptr.To(end.ExitCode)
	}
	switch {
	case w.Status.Reason == "DeadlineExceeded":
		e.reason, e.message = v1alpha1.ReasonWorkerTimedOut, fmt.Sprintf("Worker %q ran longer than its deadline", w.Name)
		return e
	case disrupted(w), w.DeletionTimestamp != nil, end == nil, end.ExitCode == 0:
		// Whatever a worker said when it was told to end, another may succeed.
		e.message = fmt.Sprintf("Worker %q %s", w.Name, stopped(w))
		return e
	case end.Reason == "OOMKilled":
		e.message = fmt.Sprintf("Worker %q was killed (exit code %d) because it used more memory than its limit%s allows", w.Name, end.ExitCode, memoryLimit(w))
		return e
	}
	said, ok := worker.Parse([]byte(end.Message))
	if ok {
		if said.Reason != "" {
			e.reason = said.Reason
		}
		e.permanent = said.Permanent
		e.message = fmt.Sprintf("Worker %q: %s", w.Name, said.Message)
		return e
	}
	e.message = fmt.Sprintf("Worker %q exited with code %d", w.Name, end.ExitCode)
	if end.Reason != "" && end.Reason != "Error" {
		e.message += " (" + end.Reason + ")"
	}
	if text := worker.CleanEnd(end.Message); text != "" {
		e.message += ": " + text
	}
	return e
}

// stopped says who stopped a worker that did not end by itself, as far as that
// is known.
func stopped(w *corev1.Pod) string {
	if c := podCondition(w, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		how := map[string]string{
			corev1.PodReasonPreemptionByScheduler: "made room for a Pod of higher priority",
			"DeletionByTaintManager":              "was evicted from its node, which is out of order or to be emptied",
			"EvictionByEvictionAPI":               "was evicted, as when its node is drained",
			"DeletionByPodGC":                     "was lost with its node",
			corev1.PodReasonTerminationByKubelet:  "was stopped by its node",
		}[c.Reason]
		if how == "" {
			how = "was stopped (" + c.Reason + ")"
		}
		return with(how, cmp.Or(clean(w.Status.Message), clean(c.Message)))
	}
	switch {
	case w.Status.Reason != "":
		return with("was stopped ("+w.Status.Reason+")", clean(w.Status.Message))
	case w.DeletionTimestamp != nil:
		return "was deleted"
	}
	return with("did not run to its end", clean(w.Status.Message))
}

func with(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}

// memoryLimit is the memory that a worker may use, to stand in a sentence.
func memoryLimit(w *corev1.Pod) string {
	for i := range w.Spec.Containers {
		if c := &w.Spec.Containers[i]; c.Name == v1alpha1.WorkerContainer {
			if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
				return " of " + limit.String()
			}
		}
	}
	return ""
}
