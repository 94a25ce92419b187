package population

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A gate stands between a manager and the API server and decides about every
// write, by the namespace that it is about and its number in there.
type gate struct {
	// kubeconfig is the path of one that leads through the gate.
	kubeconfig string

	server *httptest.Server
	next   http.Handler

	mu sync.Mutex
	// decide says what happens to the n-th write of a namespace, n from 1.
	decide func(namespace string, n int) verdict
	count  map[string]int
	struck map[string]bool
}

// A verdict is what happens to a write; nil lets it pass.
type verdict func(g *gate, w http.ResponseWriter, r *http.Request)

// hold keeps a write until its sender is dead; it never reaches the API server. An
// event is lost with its sender anyway, and is refused instead: many namespaces
// share the few lanes that events are sent in.
func hold(_ *gate, w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/events") {
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	// A server notices that a client is gone once it has read all it sent.
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// refuse answers in place of the API server.
func refuse(code int, reason metav1.StatusReason) verdict {
	return func(_ *gate, w http.ResponseWriter, _ *http.Request) { answer(w, code, reason) }
}

// pretend lets the write pass and answers that it timed out.
func pretend(g *gate, w http.ResponseWriter, r *http.Request) {
	g.next.ServeHTTP(httptest.NewRecorder(), r)
	answer(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
}

// cut closes the connection without an answer, before the write has passed.
func cut(*gate, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cutAfter lets the write pass and closes the connection without an answer.
func cutAfter(g *gate, _ http.ResponseWriter, r *http.Request) {
	g.next.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

func answer(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the sender may be gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "the test says so",
	})
}

// newGate opens a gate, through which everything passes until decide is set.
func newGate(t *testing.T) *gate {
	t.Helper()
	transport, err := rest.TransportFor(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cluster.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{count: map[string]int{}, struck: map[string]bool{}}
	g.next = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches deliver at once
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g.server = httptest.NewServer(g)
	t.Cleanup(g.server.Close)
	g.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"gate": {Server: g.server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"gate": {Cluster: "gate"}},
		CurrentContext: "gate",
	}, g.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return g
}

// set decides about writes from now on, which are counted anew.
func (g *gate) set(decide func(namespace string, n int) verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decide, g.count, g.struck = decide, map[string]int{}, map[string]bool{}
}

// hit says whether a write of a namespace did not just pass.
func (g *gate) hit(namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.struck[namespace]
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if v := g.judge(r); v != nil {
		v(g, w, r)
		return
	}
	g.next.ServeHTTP(w, r)
}

func (g *gate) judge(r *http.Request) verdict {
	if r.Method == http.MethodGet {
		return nil
	}
	namespace := namespaceOf(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	if namespace == "" || g.decide == nil {
		return nil
	}
	g.count[namespace]++
	v := g.decide(namespace, g.count[namespace])
	if v != nil {
		g.struck[namespace] = true
	}
	return v
}

// namespaceOf is the namespace that a request is about; for a volume that of
// its claim.
func namespaceOf(r *http.Request) string {
	if _, rest, ok := strings.Cut(r.URL.Path, "/namespaces/"); ok {
		namespace, _, _ := strings.Cut(rest, "/")
		return namespace
	}
	_, name, ok := strings.Cut(r.URL.Path, "/persistentvolumes/")
	if !ok {
		return ""
	}
	volume := &corev1.PersistentVolume{}
	if err := kube.Get(r.Context(), client.ObjectKey{Name: name}, volume); err != nil || volume.Spec.ClaimRef == nil {
		return ""
	}
	return volume.Spec.ClaimRef.Namespace
}

func (g *gate) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("writes seen: %v", g.count)
}
