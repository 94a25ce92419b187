package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/cluster/helm"
)

// counted is a claim that is filled by a mebibyte a second.
func counted(t *testing.T, mebibytes int64) (namespace string) {
	t.Helper()
	mustKubectl(t, "apply", "-f", filepath.Join("testdata", "counter.yaml"))
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/counter", "--timeout=30s")
	ns := space(t)
	create(t, source(groupTest, "Counter", ns, map[string]any{"mebibytes": mebibytes}))
	claim := claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupTest, "Counter", "src")
	create(t, claim)
	return ns
}

// TestProgress watches a population as a user does: figures move while the
// worker runs, never go backwards, and are whole in the end.
func TestProgress(t *testing.T) {
	t.Parallel()
	const total = 9 // of a claim of 10Mi
	ns := counted(t, total)

	var seen []v1alpha1.Progress
	eventually(t, "the population succeeds", patience, func(ctx context.Context) error {
		p, err := populationOf(ctx, ns, "claim")
		if err != nil {
			return err
		}
		if at := p.Status.Progress; at != nil && (len(seen) == 0 || !equality.Semantic.DeepEqual(*at, seen[len(seen)-1])) {
			seen = append(seen, *at)
		}
		if p.Status.Phase != v1alpha1.PhaseSucceeded {
			return fmt.Errorf("it is %q: %+v", p.Status.Phase, p.Status.Progress)
		}
		return nil
	})
	var moving int
	for i, p := range seen {
		if i > 0 && p.Bytes < seen[i-1].Bytes {
			t.Errorf("progress went back from %+v to %+v", seen[i-1], p)
		}
		if p.Bytes < total<<20 {
			moving++
			if want := fmt.Sprintf("%dMi/9Mi %d%%", p.Bytes>>20, p.Bytes*100/(total<<20)); p.Summary != want || p.Rate != "1Mi/s" || p.UpdatedAt == nil {
				t.Errorf("progress is %+v, want %s at 1Mi/s", p, want)
			}
		}
	}
	// It runs for nine seconds, is left alone for five of them and read every five.
	if moving < 1 || moving > 3 {
		t.Errorf("progress was written %d times while the worker ran: %+v", moving, seen)
	}
	if last := seen[len(seen)-1]; last.Summary != "9Mi/9Mi 100%" || last.Files != 1 {
		t.Errorf("in the end progress is %+v", last)
	}
	quiet(t, ns, 2)

	for _, tc := range []struct{ options, header, line string }{
		{"", `^NAME +PHASE +PROGRESS +SOURCE +AGE$`, `^claim +Succeeded +9Mi/9Mi 100% +Counter/src +\d+s$`},
		{"wide", `^NAME +PHASE +PROGRESS +SOURCE +AGE +RATE +ATTEMPTS +VOLUME +NODE +REASON +MOVED$`,
			`^claim +Succeeded +9Mi/9Mi 100% +Counter/src +\d+s +\S+/s +1 +pvc-\S+ +\S+ +Populated( +\d+s)?$`},
	} {
		table := mustKubectl(t, "-n", ns, "get", "populations", "-o", tc.options)
		header, line, _ := strings.Cut(strings.TrimRight(table, "\n"), "\n")
		if !regexp.MustCompile(tc.header).MatchString(strings.TrimRight(header, " ")) || !regexp.MustCompile(tc.line).MatchString(strings.TrimRight(line, " ")) {
			t.Errorf("kubectl get populations -o %q shows\n%s", tc.options, table)
		}
	}
}

// TestInFlight deletes a claim in the middle of its population: the gauge of
// what is in flight follows at once, whatever was counted before.
func TestInFlight(t *testing.T) {
	t.Parallel()
	ns := counted(t, 600)
	reason(t, ns, "claim", v1alpha1.ReasonPopulationStarted)
	populating := `sluice_claims{phase="Populating",source_kind="Counter.e2e.sluice.dev"} `
	eventually(t, "the population is counted", patience, func(ctx context.Context) error {
		return metric(ctx, populating, func(value string) bool { return value != "0" })
	})
	mustKubectl(t, "-n", ns, "delete", "pvc", "claim", "--wait", "--timeout=45s")
	eventually(t, "the other population of the kind has ended, and this one is gone", patience, func(ctx context.Context) error {
		return metric(ctx, populating, func(value string) bool { return value == "0" })
	})
}

// metric looks for a metric of whichever replica leads.
func metric(ctx context.Context, series string, want func(value string) bool) error {
	pods, err := managerPods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		text, err := kubectl(ctx, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", helm.Namespace, pod.Name))
		if err != nil {
			continue // it may be going
		}
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), series); ok {
				if want(value) {
					return nil
				}
				return fmt.Errorf("%s%s", series, value)
			}
		}
	}
	return fmt.Errorf("no replica tells %s", series)
}

// TestNewestEventNamesTheReason shows what a user sees of a claim that waits:
// the newest event in kubectl describe is why, and what to do.
func TestNewestEventNamesTheReason(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		make   func(t *testing.T, ns string) *corev1.PersistentVolumeClaim
		want   string
		text   []string
	}{
		"SourceNotFound": {
			reason: "a source that is not there yet",
			make: func(_ *testing.T, ns string) *corev1.PersistentVolumeClaim {
				return claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
			},
			want: v1alpha1.ReasonSourceNotFound, text: []string{`"src"`, "create it"},
		},
		"ClassNotFound": {
			reason: "a class that does not exist",
			make: func(_ *testing.T, ns string) *corev1.PersistentVolumeClaim {
				return claimFor(ns, "claim", "no-such-class", corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
			},
			want: v1alpha1.ReasonClassNotFound, text: []string{`"no-such-class"`, "create it"},
		},
		"WaitingForConsumer": {
			reason: "a class that waits for a Pod",
			make: func(t *testing.T, ns string) *corev1.PersistentVolumeClaim {
				create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "f", "fileContents": "x"}))
				return claimFor(ns, "claim", waiting, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
			},
			want: v1alpha1.ReasonWaitingForConsumer, text: []string{waiting, "Pod", v1alpha1.AnnotationPopulate},
		},
		"InvalidSource": {
			reason: "a source that breaks a rule of its Populator",
			make: func(t *testing.T, ns string) *corev1.PersistentVolumeClaim {
				create(t, source(groupHello, "Hello", ns, map[string]any{"fileName": "../f", "fileContents": "x"}))
				return claimFor(ns, "claim", immediate, corev1.PersistentVolumeFilesystem, groupHello, "Hello", "src")
			},
			want: v1alpha1.ReasonInvalidSource, text: []string{`"src"`, "correct it"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			create(t, tc.make(t, ns))
			var newest string
			eventually(t, tc.reason, patience, func(ctx context.Context) error {
				claim, err := claimOf(ctx, ns, "claim")
				if err != nil {
					return err
				}
				newest, err = newestEvent(ctx, ns, claim.UID)
				if err == nil && !strings.Contains(newest, tc.want) {
					err = fmt.Errorf("the newest event is %q", newest)
				}
				return err
			})
			for _, want := range tc.text {
				if !strings.Contains(newest, want) {
					t.Errorf("%s: the newest event does not speak of %s: %s", tc.reason, want, newest)
				}
			}
		})
	}
}

// newestEvent is the newest event of Sluice on a claim.
func newestEvent(ctx context.Context, namespace string, claim types.UID) (string, error) {
	all, err := ourEvents(ctx, namespace)
	if err != nil {
		return "", err
	}
	var newest string
	var last time.Time
	for _, e := range all {
		if at := e.EventTime.Time; e.Regarding.UID == claim && !at.Before(last) {
			newest, last = e.Type+" "+e.Reason+": "+e.Note, at
		}
	}
	if newest == "" {
		return "", fmt.Errorf("there is no event of ours yet")
	}
	return newest, nil
}
