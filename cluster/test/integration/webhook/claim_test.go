package webhook

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
)

func TestClaimIsWarnedAtApply(t *testing.T) {
	ignored := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ignored", Labels: map[string]string{v1alpha1.LabelIgnore: "true"}}}
	create(t, kube, ignored)
	cases := map[string]struct {
		reason string
		claim  *corev1.PersistentVolumeClaim
		warned bool
	}{
		"Unregistered": {"A kind that nobody registered is warned about.", claimOf("default", "nobody.example", "Thing"), true},
		"Claim":        {"A claim as a source is the CSI driver's.", claimOf("default", "", "PersistentVolumeClaim"), false},
		"Snapshot":     {"And so is a snapshot.", claimOf("default", "snapshot.storage.k8s.io", "VolumeSnapshot"), false},
		"Ignored":      {"Nobody looks at a namespace that Sluice keeps out of.", claimOf("ignored", "nobody.example", "Thing"), false},
		"KubeSystem":   {"Nor at the cluster's own.", claimOf("kube-system", "nobody.example", "Thing"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, w := warned(t)
			create(t, c, tc.claim)
			got := len(w.texts) == 1 && strings.HasPrefix(w.texts[0], v1alpha1.ReasonUnrecognizedKind) && strings.Contains(w.texts[0], "Thing.nobody.example")
			if tc.warned && !got || !tc.warned && len(w.texts) > 0 {
				t.Errorf("%s\nwarnings %q, want one: %t", tc.reason, w.texts, tc.warned)
			}
		})
	}
}

func TestUnrecognizedKindIsToldAndHeals(t *testing.T) {
	const group = "healed.example"
	claim := claimOf("default", group, "Thing")
	create(t, kube, claim)
	await(t, 5*time.Second, "the claim has its Warning event", func(ctx context.Context) (bool, error) {
		got, err := eventsOf(ctx, claim)
		return len(got) == 1, err
	})
	// Registered by anybody, the claim is no longer told anything, and the next
	// one passes without a warning.
	create(t, kube, &v1beta1.VolumePopulator{ObjectMeta: metav1.ObjectMeta{Name: "healed"}, SourceKind: metav1.GroupKind{Group: group, Kind: "Thing"}})
	await(t, 10*time.Second, "the registration counts", func(ctx context.Context) (bool, error) {
		c, w := warned(t)
		probe := claimOf("default", group, "Thing")
		err := c.Create(ctx, probe, client.DryRunAll)
		return len(w.texts) == 0, err
	})
	got, err := eventsOf(t.Context(), claim)
	if err != nil || len(got) != 1 {
		t.Errorf("events %v, %v, want the one", got, err)
	}
}

// eventsOf are the texts of the Warning events of ours on a claim.
func eventsOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]string, error) {
	var list eventsv1.EventList
	if err := kube.List(ctx, &list, client.InNamespace(claim.Namespace)); err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list.Items {
		if e.Regarding.UID == claim.UID && e.Reason == v1alpha1.ReasonUnrecognizedKind {
			out = append(out, e.Type+": "+e.Note)
		}
	}
	return out, nil
}

func TestLostAuthorityIsRestored(t *testing.T) {
	key := client.ObjectKey{Name: "sluice"}
	var before admissionregistrationv1.ValidatingWebhookConfiguration
	if err := kube.Get(t.Context(), key, &before); err != nil {
		t.Fatal(err)
	}
	changed := before.DeepCopy()
	for i := range changed.Webhooks {
		changed.Webhooks[i].ClientConfig.CABundle = nil
	}
	if err := kube.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	await(t, 10*time.Second, "the authority is back", func(ctx context.Context) (bool, error) {
		var now admissionregistrationv1.ValidatingWebhookConfiguration
		if err := kube.Get(ctx, key, &now); err != nil {
			return false, err
		}
		for i := range now.Webhooks {
			if !bytes.Equal(now.Webhooks[i].ClientConfig.CABundle, before.Webhooks[i].ClientConfig.CABundle) {
				return false, nil
			}
		}
		return true, nil
	})
	await(t, 10*time.Second, "webhooks answer again", func(ctx context.Context) (bool, error) {
		c, w := warned(t)
		err := c.Create(ctx, claimOf("default", "nobody.example", "Thing"), client.DryRunAll)
		return len(w.texts) == 1, err
	})
}
