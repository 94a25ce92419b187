package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const groupSluice = v1alpha1.GroupName

func secret(namespace, name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: data}
}

func configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

// servedSources waits until the manager has applied the Populators that it
// brings.
func servedSources(t *testing.T) {
	t.Helper()
	mustKubectl(t, "wait", "--for=create", "populator/http", "populator/inline", "--timeout=60s")
	mustKubectl(t, "wait", "--for=condition=Accepted", "populator/http", "populator/inline", "--timeout=60s")
}

// fill makes a source and a claim that names it.
func fill(t *testing.T, namespace, kind string, mode corev1.PersistentVolumeMode, spec map[string]any) *corev1.PersistentVolumeClaim {
	t.Helper()
	create(t, source(groupSluice, kind, namespace, spec))
	claim := claimFor(namespace, "claim", immediate, mode, groupSluice, kind, "src")
	create(t, claim)
	return claim
}

// TestHTTPSource fills volumes from a web server in every way that ends well.
func TestHTTPSource(t *testing.T) {
	t.Parallel()
	servedSources(t)
	tgz, zipped := siteTar(t), siteZip(t)
	other := serve(t, false, content([]byte("elsewhere\n")))
	mux := http.NewServeMux()
	mux.Handle("/site.tar.gz", content(tgz))
	mux.Handle("/site.zip", content(zipped))
	mux.Handle("/motd.txt", content([]byte("filled\n")))
	mux.Handle("/moved", http.RedirectHandler("/motd.txt", http.StatusFound))
	mux.Handle("/basic", private(byPassword, content([]byte("filled\n"))))
	mux.Handle("/bearer", private(byToken, content([]byte("filled\n"))))
	mux.Handle("/header", private(byHeader, content([]byte("filled\n"))))
	mux.Handle("/away", private(byToken, http.RedirectHandler(other.URL+"/taken", http.StatusFound).ServeHTTP))
	plain, secure := serve(t, false, mux), serve(t, true, mux)
	cases := map[string]struct {
		reason string
		spec   map[string]any
		secret map[string]string
		ca     string
		mode   corev1.PersistentVolumeMode
		file   string
		want   string
	}{
		"TarGz": {
			reason: "an archive with its digest",
			spec:   map[string]any{"url": plain.URL + "/site.tar.gz", "digest": digestOf(tgz), "extract": map[string]any{"stripComponents": int64(1)}},
			file:   "docs/about.txt", want: "About us\n",
		},
		"Zip": {
			reason: "a zip archive, of which a part is taken",
			spec:   map[string]any{"url": plain.URL + "/site.zip", "digest": digestOf(zipped), "extract": map[string]any{"subPath": "site/docs"}},
			file:   "about.txt", want: "About us\n",
		},
		"File":     {reason: "a file behind a redirect", spec: map[string]any{"url": plain.URL + "/moved", "fileName": "etc/motd"}, file: "etc/motd", want: "filled\n"},
		"Block":    {reason: "a file onto a device", spec: map[string]any{"url": plain.URL + "/motd.txt"}, mode: corev1.PersistentVolumeBlock, want: "filled\n"},
		"Password": {reason: "user and password", spec: map[string]any{"url": plain.URL + "/basic"}, secret: map[string]string{"username": "ada", "password": secretPassword}, file: "basic", want: "filled\n"},
		"Token":    {reason: "a token", spec: map[string]any{"url": plain.URL + "/bearer"}, secret: map[string]string{"token": secretToken}, file: "bearer", want: "filled\n"},
		"Header":   {reason: "a header", spec: map[string]any{"url": plain.URL + "/header"}, secret: map[string]string{"header.X-Token": secretHeader}, file: "header", want: "filled\n"},
		"Redirected": {
			reason: "credentials stay behind when the server sends the worker to another",
			spec:   map[string]any{"url": plain.URL + "/away", "fileName": "f"}, secret: map[string]string{"token": secretToken}, file: "f", want: "elsewhere\n",
		},
		"Authority": {
			reason: "the authority of a ConfigMap and a password over TLS",
			spec:   map[string]any{"url": secure.URL + "/basic", "caConfigMapRef": map[string]any{"name": "authorities", "key": "root.pem"}},
			secret: map[string]string{"username": "ada", "password": secretPassword}, ca: secure.authority, file: "basic", want: "filled\n",
		},
		"AuthorityOfSecret": {
			reason: "the authority of a Secret", spec: map[string]any{"url": secure.URL + "/motd.txt"},
			secret: map[string]string{"ca.crt": secure.authority}, file: "motd.txt", want: "filled\n",
		},
	}
	t.Run("Cases", func(t *testing.T) {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := space(t)
				if tc.secret != nil {
					create(t, secret(ns, "credentials", tc.secret))
					tc.spec["secretRef"] = map[string]any{"name": "credentials"}
				}
				if tc.ca != "" {
					create(t, configMap(ns, "authorities", map[string]string{"root.pem": tc.ca}))
				}
				if tc.mode == "" {
					tc.mode = corev1.PersistentVolumeFilesystem
				}
				fill(t, ns, "HTTPSource", tc.mode, tc.spec)
				succeeded(t, ns, "claim")
				quiet(t, ns, waitedForNobody)
				pod := reader(ns, "claim", tc.file, tc.mode)
				create(t, pod)
				prints(t, pod, tc.want)
			})
		}
	})
	if got := other.credentials("/taken"); len(got) == 0 || strings.Join(got, "") != "" {
		t.Errorf("the other server was shown %q, want one request without credentials", got)
	}
	if got := plain.credentials("/bearer"); len(got) == 0 {
		t.Error("nobody asked for /bearer")
	}
}

// TestHTTPSourceRefused holds what must not become a volume to its reason: the
// claim is never Bound (cases 7 and 8).
func TestHTTPSourceRefused(t *testing.T) {
	t.Parallel()
	servedSources(t)
	tgz := siteTar(t)
	mux := http.NewServeMux()
	mux.Handle("/site.tar.gz", content(tgz))
	mux.Handle("/error", content([]byte("<html>Internal error, have a nice day</html>")))
	mux.Handle("/short", announcing(100, "half"))
	mux.Handle("/missing", status(http.StatusNotFound))
	mux.Handle("/forbidden", status(http.StatusForbidden))
	mux.Handle("/broken", status(http.StatusTeapot))
	mux.Handle("/empty", content(nil))
	mux.Handle("/large", announcing(1<<40, "x"))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.Handle("/to-metadata", http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusFound))
	mux.Handle("/to-loopback", http.RedirectHandler("http://127.0.0.1:10250/", http.StatusFound))
	s := serve(t, false, mux)
	zeros := "sha256:" + strings.Repeat("0", 64)
	extract := map[string]any{"stripComponents": int64(1)}
	cases := map[string]struct {
		why     string
		spec    map[string]any
		reason  string
		again   bool
		message string
	}{
		"Digest":      {"7a: other data than the digest says", map[string]any{"url": s.URL + "/site.tar.gz", "digest": zeros, "extract": extract}, v1alpha1.ReasonDigestMismatch, false, "want sha256:000"},
		"ErrorPage":   {"7c: an error page with status 200", map[string]any{"url": s.URL + "/error", "digest": digestOf(tgz)}, v1alpha1.ReasonDigestMismatch, false, "sha256"},
		"Short":       {"7b: less than was announced; tried again", map[string]any{"url": s.URL + "/short"}, v1alpha1.ReasonTruncated, true, "100"},
		"Missing":     {"8: the server says that there is none", map[string]any{"url": s.URL + "/missing"}, v1alpha1.ReasonSourceMissing, false, "404"},
		"Unreachable": {"8: no such server is another thing", map[string]any{"url": "https://" + strings.TrimPrefix(s.URL, "http://") + "/x"}, v1alpha1.ReasonSourceUnreachable, true, ""},
		"Refusing":    {"a server that refuses the request itself", map[string]any{"url": s.URL + "/broken"}, v1alpha1.ReasonSourceUnreachable, false, "418"},
		"Forbidden":   {"the server wants to know who asks", map[string]any{"url": s.URL + "/forbidden"}, v1alpha1.ReasonSourceForbidden, false, "403"},
		"Empty":       {"a file without a byte", map[string]any{"url": s.URL + "/empty"}, v1alpha1.ReasonSourceEmpty, false, "empty"},
		"TooLarge":    {"more than the volume holds is refused before a byte is written", map[string]any{"url": s.URL + "/large"}, v1alpha1.ReasonVolumeTooSmall, false, "larger request"},
		"NoArchive":   {"a page is no archive", map[string]any{"url": s.URL + "/error", "extract": extract}, v1alpha1.ReasonUnsupportedFormat, false, "archive"},
		"Loop":        {"redirects are bounded", map[string]any{"url": s.URL + "/loop"}, "", false, "redirect"},
		"Metadata":    {"the metadata service of a cloud", map[string]any{"url": "http://169.254.169.254/"}, v1alpha1.ReasonAddressNotAllowed, false, "169.254.169.254"},
		"Loopback":    {"the node itself, by a name", map[string]any{"url": "http://localhost:10250/"}, v1alpha1.ReasonAddressNotAllowed, false, ""},
		"ToMetadata":  {"behind a redirect", map[string]any{"url": s.URL + "/to-metadata"}, v1alpha1.ReasonAddressNotAllowed, false, "169.254.169.254"},
		"ToLoopback":  {"behind a redirect", map[string]any{"url": s.URL + "/to-loopback"}, v1alpha1.ReasonAddressNotAllowed, false, "127.0.0.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			claim := fill(t, ns, "HTTPSource", corev1.PersistentVolumeFilesystem, tc.spec)
			result := ended(t, claim)
			if result.Permanent == tc.again || tc.reason != "" && result.Reason != tc.reason || !strings.Contains(result.Message, tc.message) {
				t.Errorf("%s: ended with %s, permanent %t: %s; want %s, permanent %t, and %q in the message",
					tc.why, result.Reason, result.Permanent, result.Message, tc.reason, !tc.again, tc.message)
			}
			if !strings.Contains(event(t, ns, "claim", result.Reason), result.Message) {
				t.Errorf("%s: the event says something else than the Population", tc.why)
			}
			neverBound(t, claim)
		})
	}
}

// ended waits for the first attempt of a claim to end badly.
func ended(t *testing.T, claim *corev1.PersistentVolumeClaim) *v1alpha1.Result {
	t.Helper()
	var result *v1alpha1.Result
	// A worker gives a server that does not answer two minutes.
	eventually(t, "an attempt ends", 2*time.Minute+patience, func(ctx context.Context) error {
		p, err := populationOf(ctx, claim.Namespace, claim.Name)
		if err != nil {
			return err
		}
		if result = p.Status.Result; result == nil {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
	if result.Succeeded {
		t.Fatalf("the population succeeded: %s", result.Message)
	}
	return result
}

func neverBound(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	got, err := claimOf(t.Context(), claim.Namespace, claim.Name)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Phase != corev1.ClaimPending || got.Spec.VolumeName != "" {
		t.Errorf("claim is %s to %q, want it Pending", got.Status.Phase, got.Spec.VolumeName)
	}
}

// TestOnMissing binds a claim to an empty volume where the source says so, and
// where the answer is that there is nothing: never for a server that fails.
func TestOnMissing(t *testing.T) {
	t.Parallel()
	servedSources(t)
	mux := http.NewServeMux()
	mux.Handle("/empty", content(nil))
	mux.Handle("/broken", status(http.StatusTeapot))
	s := serve(t, false, mux)
	cases := map[string]struct {
		kind  string
		spec  map[string]any
		wants string // the reason; with a ! where the claim must not be Bound
	}{
		"NoFile":      {"HTTPSource", map[string]any{"url": s.URL + "/none"}, v1alpha1.ReasonSourceMissing},
		"EmptyFile":   {"HTTPSource", map[string]any{"url": s.URL + "/empty"}, v1alpha1.ReasonSourceEmpty},
		"Fails":       {"HTTPSource", map[string]any{"url": s.URL + "/broken"}, "!" + v1alpha1.ReasonSourceUnreachable},
		"NoFiles":     {"InlineSource", map[string]any{}, v1alpha1.ReasonSourceEmpty},
		"NoConfigMap": {"InlineSource", map[string]any{"configMap": map[string]any{"name": "none"}}, v1alpha1.ReasonSourceMissing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			tc.spec["onMissing"] = "Continue"
			claim := fill(t, ns, tc.kind, corev1.PersistentVolumeFilesystem, tc.spec)
			if reason, ok := strings.CutPrefix(tc.wants, "!"); ok {
				if got := ended(t, claim); got.Reason != reason {
					t.Errorf("ended with %s: %s; want %s", got.Reason, got.Message, reason)
				}
				neverBound(t, claim)
				return
			}
			succeeded(t, ns, "claim")
			p, err := populationOf(t.Context(), ns, "claim")
			if err != nil {
				t.Fatal(err)
			}
			if r := p.Status.Result; r == nil || !r.Succeeded || !strings.Contains(r.Message, "stays empty") {
				t.Errorf("result = %+v, want success and a message that the volume stays empty", r)
			}
			pod := reader(ns, "claim", "", corev1.PersistentVolumeFilesystem)
			pod.Spec.Containers[0].Command = []string{"sh", "-c", "ls -A /volume | grep -v '^lost+found$' | wc -l"}
			create(t, pod)
			prints(t, pod, "0\n")
		})
	}
}

// TestInlineSource takes files from the source itself, a ConfigMap and a Secret.
func TestInlineSource(t *testing.T) {
	t.Parallel()
	servedSources(t)
	ns := space(t)
	create(t, configMap(ns, "settings", map[string]string{"app.conf": "greeting = hello\n"}))
	create(t, secret(ns, "certificate", map[string]string{"tls.key": secretToken, "tls.crt": "public"}))
	fill(t, ns, "InlineSource", corev1.PersistentVolumeFilesystem, map[string]any{
		"files":     []any{map[string]any{"path": "bin/show", "mode": "0755", "content": "#!/bin/sh\ncat /volume/etc/app.conf /volume/keys/private\nls /volume/keys\n"}},
		"configMap": map[string]any{"name": "settings", "path": "etc"},
		"secret":    map[string]any{"name": "certificate", "items": []any{map[string]any{"key": "tls.key", "path": "keys/private", "mode": "0444"}}},
	})
	succeeded(t, ns, "claim")
	quiet(t, ns, waitedForNobody)
	pod := reader(ns, "claim", "", corev1.PersistentVolumeFilesystem)
	pod.Spec.Containers[0].Command = []string{"/volume/bin/show"}
	create(t, pod)
	prints(t, pod, "greeting = hello\n"+secretToken+"private\n")
}

// TestSecretComesLate names the Secret that a worker waits for, and goes on by
// itself when it is there.
func TestSecretComesLate(t *testing.T) {
	t.Parallel()
	servedSources(t)
	mux := http.NewServeMux()
	mux.Handle("/private", private(byToken, content([]byte("filled\n"))))
	s := serve(t, false, mux)
	ns := space(t)
	claim := fill(t, ns, "HTTPSource", corev1.PersistentVolumeFilesystem, map[string]any{"url": s.URL + "/private", "secretRef": map[string]any{"name": "late"}})
	said := event(t, ns, "claim", v1alpha1.ReasonSourceMissing)
	if !strings.Contains(said, `Secret "late"`) || !strings.Contains(said, ns) {
		t.Errorf("the event says %q, want the Secret and its namespace", said)
	}
	neverBound(t, claim)
	create(t, secret(ns, "late", map[string]string{"token": secretToken}))
	eventually(t, "the claim is filled", 3*time.Minute, func(ctx context.Context) error {
		p, err := populationOf(ctx, ns, "claim")
		if err == nil && p.Status.Phase != v1alpha1.PhaseSucceeded {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
	succeeded(t, ns, "claim")
}

// TestSecretStaysSecret looks for the values of a source's Secret wherever
// people look, while the worker runs and after it (case 14).
func TestSecretStaysSecret(t *testing.T) {
	t.Parallel()
	servedSources(t)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/private", private(byPassword, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		content([]byte("filled\n"))(w, r)
	}))
	mux.Handle("/refused", status(http.StatusForbidden))
	s := serve(t, false, mux)
	ns := space(t)
	mustKubectl(t, "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted")
	create(t, secret(ns, "credentials", map[string]string{"username": "ada", "password": secretPassword}))
	claim := fill(t, ns, "HTTPSource", corev1.PersistentVolumeFilesystem, map[string]any{"url": s.URL + "/private", "secretRef": map[string]any{"name": "credentials"}})
	refused := source(groupSluice, "HTTPSource", ns, map[string]any{"url": s.URL + "/refused", "secretRef": map[string]any{"name": "credentials"}})
	refused.SetName("refused")
	create(t, refused)
	bad := claimFor(ns, "bad", immediate, corev1.PersistentVolumeFilesystem, groupSluice, "HTTPSource", "refused")
	create(t, bad)
	ended(t, bad)
	var worker corev1.Pod
	eventually(t, "the worker runs", patience, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := kube.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{v1alpha1.LabelClaimUID: string(claim.UID)}); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning || len(s.credentials("/private")) == 0 {
			return fmt.Errorf("there are %d, and %d requests", len(pods.Items), len(s.credentials("/private")))
		}
		worker = pods.Items[0]
		return nil
	})
	if token := worker.Spec.AutomountServiceAccountToken; token == nil || *token {
		t.Error("the worker has a token of the API server")
	}
	places := map[string]string{}
	look := func(when string) {
		for _, args := range [][]string{
			{"-n", ns, "get", "pods,pvc,populations,events,configmaps,httpsources", "-o", "yaml"},
			{"-n", ns, "get", "events.events.k8s.io", "-o", "yaml"},
			{"get", "pv", "-o", "yaml"},
		} {
			places[when+" kubectl "+strings.Join(args, " ")] = mustKubectl(t, args...)
		}
		places[when+" the manager's log"] = managerLog(t.Context())
		pods, err := managerPods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			metrics, err := clientset.CoreV1().RESTClient().Get().Namespace(p.Namespace).Resource("pods").Name(p.Name + ":8080").SubResource("proxy").Suffix("metrics").DoRaw(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			places[when+" metrics of "+p.Name] = string(metrics)
		}
	}
	look("while it runs,")
	log, err := podLog(t.Context(), ns, worker.Name, 1000)
	if err != nil {
		t.Fatal(err)
	}
	places["the worker's log"] = log
	badWorker := types.NamespacedName{Namespace: ns, Name: "sluice-" + string(bad.UID) + "-1"}
	if places["the failed worker's log"], err = podLog(t.Context(), ns, badWorker.Name, 1000); err != nil {
		t.Fatal(err)
	}
	close(release)
	succeeded(t, ns, "claim")
	look("afterwards,")
	for place, text := range places {
		if strings.Contains(text, secretPassword) {
			t.Errorf("the password stands in: %s", place)
		}
	}
	if len(places) < 8 {
		t.Errorf("only %d places were looked at", len(places))
	}
}

// TestSourceExamples applies the examples of the shipped sources as they stand,
// but for the address of the server.
func TestSourceExamples(t *testing.T) {
	t.Parallel()
	servedSources(t)
	tgz := siteTar(t)
	s := serve(t, false, content(tgz))
	cases := map[string]struct {
		folder, file, claim, job string
		edit                     map[string]string
		want                     []string
	}{
		"HTTP": {
			folder: "http", file: "source.yaml", claim: "site", job: "list-site",
			edit: map[string]string{"https://downloads.example": s.URL, "sha256:" + strings.Repeat("0", 64): digestOf(tgz)},
			want: []string{"index.html", "about.txt"},
		},
		"Inline": {folder: "inline", file: "settings.yaml", claim: "settings", job: "greet", want: []string{"Hello from a file with a path\n", "level = info\n", "s3cret\n"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := space(t)
			raw, err := os.ReadFile(example(tc.folder, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			text := string(raw)
			for from, to := range tc.edit {
				if !strings.Contains(text, from) {
					t.Fatalf("the example does not hold %q", from)
				}
				text = strings.ReplaceAll(text, from, to)
			}
			if out, err := kubectlIn(t.Context(), text, "-n", ns, "apply", "-f", "-"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			mustKubectl(t, "-n", ns, "wait", "--for=condition=Complete", "job/"+tc.job, "--timeout=90s")
			got := mustKubectl(t, "-n", ns, "logs", "job/"+tc.job)
			for _, w := range tc.want {
				if !strings.Contains(got, w) {
					t.Errorf("the job printed %q, want %q in it", got, w)
				}
			}
			succeeded(t, ns, tc.claim)
		})
	}
}
