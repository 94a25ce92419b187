package plugin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// storage is a plugin that answers what it is told to.
type storage struct {
	populatorv1.UnimplementedPopulatorServer
	err error
}

func (s *storage) GetInfo(context.Context, *populatorv1.GetInfoRequest) (*populatorv1.GetInfoResponse, error) {
	return &populatorv1.GetInfoResponse{
		Name: "storage.example\x07", Version: "1", SourceKinds: []*populatorv1.Kind{{Group: "example.com", Kind: "Snapshot"}},
		Capabilities: []populatorv1.Capability{populatorv1.Capability_CAPABILITY_FILL, 99},
	}, s.err
}

func (s *storage) StartFill(_ context.Context, r *populatorv1.StartFillRequest) (*populatorv1.StartFillResponse, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &populatorv1.StartFillResponse{Fill: &populatorv1.Fill{
		Id: r.GetId(), CsiHandle: r.GetVolume().GetCsiHandle(), State: populatorv1.Fill_STATE_SUCCEEDED,
		Message: "read " + r.GetSource().GetName(), BytesDone: -1,
	}}, nil
}

// reads are a claim, a volume and a source.
type reads struct{ populator *v1alpha1.Populator }

func (r reads) Populator(context.Context, string) (*v1alpha1.Populator, error) {
	return r.populator, nil
}

func (reads) Claim(_ context.Context, key types.NamespacedName, uid types.UID) (*corev1.PersistentVolumeClaim, error) {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}, nil
}

func (reads) Source(context.Context, *v1alpha1.Populator, *corev1.PersistentVolumeClaim) (source *unstructured.Unstructured, reason, message string, err error) {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "snap"}}}, "", "", nil
}

func (reads) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "v"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "handle"},
		}},
	}, nil
}

func serve(t *testing.T, l net.Listener, s *storage, o ...grpc.ServerOption) {
	t.Helper()
	server := grpc.NewServer(o...)
	populatorv1.RegisterPopulatorServer(server, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
}

func populatorOf(p *v1alpha1.Plugin) *v1alpha1.Populator {
	return &v1alpha1.Populator{
		ObjectMeta: metav1.ObjectMeta{Name: "snapshots", UID: "p", Generation: 1},
		Spec:       v1alpha1.PopulatorSpec{SourceKind: v1alpha1.SourceKind{Group: "example.com", Kind: "Snapshot"}, Plugin: p},
	}
}

// overSocket serves a plugin on a unix socket and returns its Populator.
func overSocket(t *testing.T, s *storage) *v1alpha1.Populator {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, s)
	return populatorOf(&v1alpha1.Plugin{Socket: path})
}

// answer makes a call and waits for its answer.
func answer(t *testing.T, p *v1alpha1.Populator, call populate.CallPlugin) populate.Answer {
	t.Helper()
	c := NewCaller(NewConnections(nil, nil), reads{p}, time.Now, logr.Discard())
	answered := make(chan populate.CallPlugin, 1)
	c.Listen(func(call populate.CallPlugin) { answered <- call })
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = c.Start(ctx) }()
	defer func() { stop(); <-stopped }()
	c.Call(call)
	c.Call(call) // while it waits or is under way, nothing more comes of it
	select {
	case <-answered:
	case <-time.After(30 * time.Second):
		t.Fatal("no answer")
	}
	all := c.Answers(call.ClaimUID)
	if len(all) != 1 {
		t.Fatalf("got answers %+v, want one", all)
	}
	return all[0]
}

var start = populate.CallPlugin{
	Populator: "snapshots", Call: populate.CallStart, ID: "id", Namespace: "ns", Name: "c", ClaimUID: "u", Volume: "pv", VolumeUID: "v", Attempt: 1,
}

func TestCallOverSocket(t *testing.T) {
	a := answer(t, overSocket(t, &storage{}), start)
	if a.State != populate.FillSucceeded || a.Message != "read snap" || a.Bytes != 0 || a.Pending {
		t.Errorf("got %+v, want a fill that succeeded", a)
	}
}

func TestCallEndsWithoutAnswer(t *testing.T) {
	cases := map[string]struct {
		reason   string
		code     codes.Code
		doubtful bool
		check    func(populate.Answer) bool
	}{
		"Unavailable": {"The plugin says that it did nothing", codes.Unavailable, false, func(a populate.Answer) bool { return a.Unavailable != "" && a.RetryAfter == firstAgain }},
		"Internal":    {"A plugin that broke may have begun", codes.Internal, true, func(a populate.Answer) bool { return a.Unavailable != "" }},
		"Busy":        {"A plugin with enough to do is waited for", codes.ResourceExhausted, false, func(a populate.Answer) bool { return a.Reason == v1alpha1.ReasonWaitingForSlot }},
		"Invalid":     {"A bad source ends the attempt for good", codes.InvalidArgument, false, func(a populate.Answer) bool { return a.Failure != nil && a.Failure.Permanent }},
		"Refused":     {"A refusal ends the attempt", codes.FailedPrecondition, false, func(a populate.Answer) bool { return a.Failure != nil && !a.Failure.Permanent }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := answer(t, overSocket(t, &storage{err: status.Error(tc.code, "no\x00pe")}), start)
			if !tc.check(a) || a.Doubtful != tc.doubtful || strings.ContainsRune(a.Unavailable, 0) {
				t.Errorf("%s: got %+v", tc.reason, a)
			}
		})
	}
	t.Run("Down", func(t *testing.T) {
		a := answer(t, populatorOf(&v1alpha1.Plugin{Socket: filepath.Join(t.TempDir(), "none")}), start)
		if a.Unavailable == "" || a.Doubtful {
			t.Errorf("got %+v, want no answer and no doubt: nothing was sent", a)
		}
	})
}

func TestMutualTLS(t *testing.T) {
	keeper := NewKeeper(fake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: SecretName}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: ConfigMapName}},
	), "sys", time.Now, logr.Discard())
	if err := keeper.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	published, err := keeper.clients.CoreV1().ConfigMaps("sys").Get(t.Context(), ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM([]byte(published.Data["ca.crt"])) {
		t.Fatal("the ConfigMap holds no authority")
	}
	vendor := template("populator.vendor.svc", time.Now(), time.Hour, true)
	vendor.DNSNames = []string{"populator.vendor.svc"}
	cert, key, err := sign(vendor, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, &storage{}, grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})))
	asked := ""
	connections := NewConnections(keeper, func(ctx context.Context, network, address string) (net.Conn, error) {
		asked = address
		return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
	})
	p := populatorOf(&v1alpha1.Plugin{Service: &v1alpha1.PluginService{Namespace: "vendor", Name: "populator", CABundle: cert}})
	info, err := Asker{Clients: connections, Now: time.Now}.Ask(t.Context(), p)
	if err != nil || info.Name != "storage.example" || len(info.Capabilities) != 1 || asked != "populator.vendor.svc:9443" {
		t.Errorf("got %+v, %v at %q, want the plugin's word for itself", info, err, asked)
	}
	p.Generation, p.Spec.Plugin.Service.CABundle = 2, []byte(published.Data["ca.crt"])
	if _, err := (Asker{Clients: connections, Now: time.Now}).Ask(t.Context(), p); err == nil {
		t.Error("a plugin whose certificate another authority signed was believed")
	}
}
