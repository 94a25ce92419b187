package datasource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// TestUpdate shows that the source of a claim is fixed when it is created, and
// which updates are let through because they change nothing.
func TestUpdate(t *testing.T) {
	hello := sources{local(helloGroup, "Hello", "a"), ref(helloGroup, "Hello", "a")}
	other := sources{local(helloGroup, "Hello", "b"), ref(helloGroup, "Hello", "b")}
	cases := map[string]struct {
		reason      string
		created     sources
		updated     sources
		wantRefused bool
		// want is what is stored afterwards.
		want sources
	}{
		"Changed": {
			reason:      "another source is another volume",
			created:     hello,
			updated:     other,
			wantRefused: true,
			want:        hello,
		},
		"OneChanged": {
			reason:      "changing one field alone makes them differ",
			created:     hello,
			updated:     sources{hello.DataSource, other.DataSourceRef},
			wantRefused: true,
			want:        hello,
		},
		"Removed": {
			reason:      "a claim does not lose its source",
			created:     hello,
			updated:     sources{},
			wantRefused: true,
			want:        hello,
		},
		"Added": {
			reason:      "a claim without a source never gets one",
			created:     sources{},
			updated:     sources{DataSourceRef: hello.DataSourceRef},
			wantRefused: true,
			want:        sources{},
		},
		"RefOmitted": {
			reason:  "a client from before dataSourceRef leaves it out, and the server fills it in again",
			created: hello,
			updated: sources{DataSource: hello.DataSource},
			want:    hello,
		},
		"DataSourceOmitted": {
			reason:  "a client that knows dataSourceRef alone may leave the other out",
			created: hello,
			updated: sources{DataSourceRef: hello.DataSourceRef},
			want:    hello,
		},
		"UnknownDataSourceAdded": {
			reason:  "what the old field does not know is ignored in updates too",
			created: sources{},
			updated: sources{DataSource: hello.DataSource},
			want:    sources{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, err := create(t, server, tc.created)
			if err != nil {
				t.Fatalf("%s: create: %v", tc.reason, err)
			}
			err = update(t, stored.Name, tc.updated)
			switch {
			case tc.wantRefused && !apierrors.IsInvalid(err):
				t.Errorf("%s: update gave %v, want it refused as invalid", tc.reason, err)
			case !tc.wantRefused && err != nil:
				t.Errorf("%s: update: %v", tc.reason, err)
			}
			got, err := server.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), stored.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, sourcesOf(got)); diff != "" {
				t.Errorf("%s: stored (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// update writes the sources into a stored claim, again where another writer
// came between.
func update(t *testing.T, name string, s sources) error {
	t.Helper()
	claims := server.CoreV1().PersistentVolumeClaims(namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var c *corev1.PersistentVolumeClaim
		c, err := claims.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Spec.DataSource, c.Spec.DataSourceRef = s.DataSource, s.DataSourceRef
		_, err = claims.Update(t.Context(), c, metav1.UpdateOptions{})
		return err
	})
}
