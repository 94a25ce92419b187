package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/clustertest"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// patience bounds how long a test waits for one thing on a slow machine.
const patience = 90 * time.Second

// eventually calls check until it returns nil, and fails the test with its
// last answer if it does not in time.
func eventually(t *testing.T, what string, within time.Duration, check func(context.Context) error) {
	t.Helper()
	clustertest.Eventually(t, what, within, check)
}

// createOptions are those of a user who mistypes nothing.
func createOptions() metav1.CreateOptions {
	return metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
}

// kubectl runs the real kubectl and returns what it printed.
func kubectl(ctx context.Context, args ...string) (string, error) {
	return kubectlIn(ctx, "", args...)
}

// kubectlIn is kubectl with a text on standard input.
func kubectlIn(ctx context.Context, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(cluster.BinDir, "kubectl"), append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...) //nolint:gosec // arguments of the tests
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// mustKubectl is kubectl for a step that has to work.
func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// example is the path of a file of an example.
func example(parts ...string) string {
	return filepath.Join(append([]string{repository, "examples"}, parts...)...)
}

// space makes a namespace that is gone, with all in it, when the test ends. If
// the test fails, it first prints what happened there.
func space(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if err := kube.Create(t.Context(), ns); err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			diagnose(ctx, t, ns.Name)
		}
		deleteSpace(t, ns.Name)
	})
	return ns.Name
}

// deleteSpace deletes a namespace, if it is still there, and waits until it is
// gone. It works when the test's own context has ended.
func deleteSpace(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := kube.Delete(ctx, ns)
	for ctx.Err() == nil {
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			t.Errorf("delete namespace %q: %v", name, err)
			return
		}
		err = kube.Get(ctx, client.ObjectKeyFromObject(ns), ns)
	}
	t.Errorf("namespace %q does not go: %+v", name, ns.Status.Conditions)
}

// diagnose prints what a reader of a failure asks first.
func diagnose(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"get", "pods,pvc,populations", "-o", "wide"},
		{"get", "populations", "-o", "yaml"},
	} {
		out, err := kubectl(ctx, append([]string{"-n", namespace}, args...)...)
		t.Logf("kubectl %s (%v):\n%s", strings.Join(args, " "), err, out)
	}
	out, err := kubectl(ctx, "get", "pv,populators,volumepopulators", "-o", "wide")
	t.Logf("volumes and populators (%v):\n%s", err, out)
	t.Logf("the manager's log:\n%s", managerLog(ctx))
	for _, component := range []string{"kube-controller-manager", "csi-provisioner"} {
		t.Logf("the end of %s's log:\n%s", component, cluster.Log(component, 15))
	}
}

// managerLog is the end of the log of each of the manager's Pods.
func managerLog(ctx context.Context) string {
	pods, err := managerPods(ctx)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&out, "---- %s %s\n", p.Name, p.Status.Phase)
		logs, err := podLog(ctx, helm.Namespace, p.Name, 40)
		if err != nil {
			logs = err.Error()
		}
		for line := range strings.Lines(logs) {
			if !strings.Contains(line, "healthz") {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

func managerPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := kube.List(ctx, &pods, client.InNamespace(helm.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
	if err != nil {
		return nil, fmt.Errorf("list the manager's Pods: %w", err)
	}
	return pods.Items, nil
}

func podLog(ctx context.Context, namespace, name string, lines int64) (string, error) {
	stream, err := clientset.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{TailLines: &lines}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read log of Pod %q: %w", name, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}

// get reads an object anew.
func get[T client.Object](ctx context.Context, namespace, name string, into T) (T, error) {
	err := kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if err != nil {
		return into, fmt.Errorf("get %T %q: %w", into, name, err)
	}
	return into, nil
}

func claimOf(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return get(ctx, namespace, name, &corev1.PersistentVolumeClaim{})
}

func populationOf(ctx context.Context, namespace, name string) (*v1alpha1.Population, error) {
	return get(ctx, namespace, name, &v1alpha1.Population{})
}

// completed waits until the Population of a claim says Succeeded.
func completed(t *testing.T, namespace, claim string) *v1alpha1.Population {
	t.Helper()
	var p *v1alpha1.Population
	eventually(t, fmt.Sprintf("population %q succeeds", claim), patience, func(ctx context.Context) (err error) {
		if p, err = populationOf(ctx, namespace, claim); err != nil {
			return err
		}
		if p.Status.Phase != v1alpha1.PhaseSucceeded {
			return fmt.Errorf("it is %q: %+v", p.Status.Phase, meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady))
		}
		return nil
	})
	return p
}

// reason waits until the Population of a claim gives a reason, and returns the
// message.
func reason(t *testing.T, namespace, claim, want string) string {
	t.Helper()
	var message string
	eventually(t, fmt.Sprintf("population %q says %s", claim, want), patience, func(ctx context.Context) error {
		p, err := populationOf(ctx, namespace, claim)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != want {
			return fmt.Errorf("its Ready condition is %+v", c)
		}
		message = c.Message
		return nil
	})
	return message
}

// ourEvents lists the events of Sluice in a namespace.
func ourEvents(ctx context.Context, namespace string) ([]eventsv1.Event, error) {
	var list eventsv1.EventList
	if err := kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return !strings.HasPrefix(e.ReportingController, "sluice.dev/")
	}), nil
}

// event waits for an event of ours about a claim and returns its note.
func event(t *testing.T, namespace, claim, want string) string {
	t.Helper()
	var note string
	eventually(t, fmt.Sprintf("event %s on claim %q", want, claim), patience, func(ctx context.Context) error {
		all, err := ourEvents(ctx, namespace)
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range all {
			if e.Regarding.Name == claim && e.Reason == want {
				note = e.Note
				return nil
			}
			seen = append(seen, e.Reason)
		}
		return fmt.Errorf("there are %v", seen)
	})
	return note
}

// temporaries lists the objects that bear the label of a claim's population.
func temporaries(ctx context.Context, uid types.UID) ([]string, error) {
	var found []string
	for kind, list := range map[string]client.ObjectList{
		"claim":     &corev1.PersistentVolumeClaimList{},
		"Pod":       &corev1.PodList{},
		"ConfigMap": &corev1.ConfigMapList{},
	} {
		if err := kube.List(ctx, list, client.MatchingLabels{v1alpha1.LabelClaimUID: string(uid)}); err != nil {
			return nil, fmt.Errorf("list temporaries: %w", err)
		}
		err := meta.EachListItem(list, func(o runtimeObject) error {
			a, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			found = append(found, kind+" "+a.GetNamespace()+"/"+a.GetName())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return found, nil
}

// clean waits until nothing temporary is left of a claim's population.
func clean(t *testing.T, uid types.UID, within time.Duration) {
	t.Helper()
	eventually(t, "temporaries are gone", within, func(ctx context.Context) error {
		found, err := temporaries(ctx, uid)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("left: %v", found)
		}
		return err
	})
}

// succeeded asserts all that is true after a population that nothing
// disturbed, and returns the claim.
func succeeded(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := settled(t, namespace, name)
	event(t, namespace, name, v1alpha1.ReasonPopulated)
	return claim
}

// settled is succeeded where the manager may have ended at any moment. It tells
// the event after it wrote the record, so one that ends just then takes the
// event with it; the record stays.
func settled(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	p := completed(t, namespace, name)
	claim, err := claimOf(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != p.Status.VolumeName {
		t.Errorf("claim is %s to %q, the population filled %q", claim.Status.Phase, claim.Spec.VolumeName, p.Status.VolumeName)
	}
	volume, err := get(t.Context(), "", claim.Spec.VolumeName, &corev1.PersistentVolume{})
	if err != nil {
		t.Fatal(err)
	}
	if ref := volume.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		t.Errorf("volume belongs to %+v, want the claim with UID %s", ref, claim.UID)
	}
	if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("reclaim policy = %s, want the class's", volume.Spec.PersistentVolumeReclaimPolicy)
	}
	clean(t, claim.UID, 20*time.Second)
	// One that had temporaries in another namespace is held until these are gone.
	eventually(t, "the claim is let go", 20*time.Second, func(ctx context.Context) error {
		now, err := claimOf(ctx, namespace, name)
		if err == nil && slices.ContainsFunc(now.Finalizers, func(f string) bool { return strings.HasPrefix(f, "sluice.dev/") }) {
			err = fmt.Errorf("it has finalizers %v", now.Finalizers)
		}
		return err
	})
	return claim
}

// How many events of ours a claim may have after a run that went well.
const (
	// waitedForNobody: that it started and that it is populated.
	waitedForNobody = 2
	// waitedForConsumer: that it waited, too.
	waitedForConsumer = 3
)

// quiet asserts that Sluice complained about nothing and said little.
func quiet(t *testing.T, namespace string, limit int) {
	t.Helper()
	all, err := ourEvents(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range all {
		if e.Type == corev1.EventTypeWarning {
			t.Errorf("Warning event on %s %q: %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
		}
		count[e.Regarding.Name]++
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if count[name] > limit {
			t.Errorf("%d events of ours on %q, want at most %d", count[name], name, limit)
		}
	}
}
