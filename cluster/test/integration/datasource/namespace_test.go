package datasource

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/cluster/clustertest"
)

// TestNamespacedSourceGateOff shows what happens to a source of another
// namespace where the gate CrossNamespaceVolumeDataSource is off, as it is by
// default: the reference vanishes whole and without a word, and the claim is one
// for an empty volume. Nothing after admission can tell it from a claim that
// never had a source.
func TestNamespacedSourceGateOff(t *testing.T) {
	cases := map[string]createCase{
		"RefAlone": {
			reason: "a reference with a namespace is dropped whole, not only its namespace",
			given:  sources{DataSourceRef: refIn("other", helloGroup, "Hello", "a")},
			want:   sources{},
		},
		"SnapshotRef": {
			reason: "known kinds are no exception",
			given:  sources{DataSourceRef: refIn("other", snapshotGroup, "VolumeSnapshot", "a")},
			want:   sources{},
		},
		"OwnNamespace": {
			reason: "the claim's own namespace, spelled out, is a namespace too",
			given:  sources{DataSourceRef: refIn(namespace, helloGroup, "Hello", "b")},
			want:   sources{},
		},
		"EmptyNamespace": {
			reason: "an empty namespace means none",
			given:  sources{DataSourceRef: refIn("", helloGroup, "Hello", "a")},
			want:   sources{local(helloGroup, "Hello", "a"), refIn("", helloGroup, "Hello", "a")},
		},
		"DataSourceRemains": {
			reason: "dataSource beside it is then judged alone, as if only it had been given",
			given:  sources{local(snapshotGroup, "VolumeSnapshot", "b"), refIn("other", helloGroup, "Hello", "a")},
			want:   sources{local(snapshotGroup, "VolumeSnapshot", "b"), ref(snapshotGroup, "VolumeSnapshot", "b")},
		},
	}
	runCreate(t, server, cases)
}

// TestNamespacedSourceGateOn shows the same where the gate is on, on a cluster
// beside the first.
func TestNamespacedSourceGateOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := clustertest.Start(ctx, controlPlane(map[string]bool{"CrossNamespaceVolumeDataSource": true}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the second cluster: %v", err)
		}
	})
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]createCase{
		"RefAlone": {
			reason: "the reference is kept; dataSource cannot say it and stays empty",
			given:  sources{DataSourceRef: refIn("other", helloGroup, "Hello", "a")},
			want:   sources{DataSourceRef: refIn("other", helloGroup, "Hello", "a")},
		},
		"Both": {
			reason:      "dataSource has no namespace, so it cannot match",
			given:       sources{local(helloGroup, "Hello", "a"), refIn("other", helloGroup, "Hello", "a")},
			wantField:   "spec",
			wantMessage: "may not be specified when dataSourceRef.namespace is specified",
		},
		"BadNamespace": {
			reason:      "the namespace has to be one",
			given:       sources{DataSourceRef: refIn("Not_A_Namespace", helloGroup, "Hello", "a")},
			wantField:   "spec.dataSourceRef.namespace",
			wantMessage: "Invalid value",
		},
	}
	runCreate(t, client, cases)
}
