package populator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/definition"
)

// finder finds one definition.
type finder struct {
	found definition.Definition
	err   error
}

func (f finder) Find(context.Context, schema.GroupKind) (definition.Definition, error) {
	return f.found, f.err
}

func hellos(t *testing.T) definition.Definition {
	t.Helper()
	d := definition.Definition{
		Resource: schema.GroupVersionResource{Group: "hello.k8s.io", Version: "v1alpha1", Resource: "hellos"},
		Schema:   &apiextensionsv1.JSONSchemaProps{},
	}
	const text = `{"type": "object", "properties": {"spec": {"type": "object", "properties": {"fileName": {"type": "string"}}}}}`
	if err := json.Unmarshal([]byte(text), d.Schema); err != nil {
		t.Fatal(err)
	}
	return d
}

// object is a Populator with a worker, as JSON; extra goes into the worker.
func object(value, extra string) string {
	return `{"apiVersion": "sluice.dev/v1alpha1", "kind": "Populator", "metadata": {"name": "hello"},
		"spec": {"sourceKind": {"group": "hello.k8s.io", "kind": "Hello"},
		"worker": {"image": "busybox", "env": [{"name": "NAME", "value": "` + value + `"}]` + extra + `}}}`
}

// pluginObject is a Populator with a plugin, as JSON; extra goes into the spec.
func pluginObject(plugin, extra string) string {
	return `{"apiVersion": "sluice.dev/v1alpha1", "kind": "Populator", "metadata": {"name": "hello"},
		"spec": {"sourceKind": {"group": "hello.k8s.io", "kind": "Hello"}, "plugin": ` + plugin + extra + `}}`
}

// service is a plugin behind a Service with a bundle of authorities.
func service(t *testing.T, bundle []byte) string {
	t.Helper()
	text, err := json.Marshal(v1alpha1.Plugin{Service: &v1alpha1.PluginService{Namespace: "vendor", Name: "plugin", Port: 9443, CABundle: bundle}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// authority is the certificate of some authority.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func request(operation admissionv1.Operation, raw string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: operation, Name: "hello", Object: runtime.RawExtension{Raw: []byte(raw)},
	}}
}

func TestHandle(t *testing.T) {
	cases := map[string]struct {
		reason    string
		operation admissionv1.Operation
		raw       string
		found     func(*finder)
		refused   []string // paths of the fields; nil: allowed
		warned    string
	}{
		"Good":         {reason: "A good Populator passes.", raw: object("${source.spec.fileName}", "")},
		"Bad":          {reason: "A bad expression is refused at its path.", raw: object("${source.spec.}", ""), refused: []string{"spec.worker.env[0].value"}},
		"SchemaError":  {reason: "The schema is used.", raw: object("${source.spec.filename}", ""), refused: []string{"spec.worker.env[0].value"}},
		"Update":       {reason: "An update is judged as well.", operation: admissionv1.Update, raw: object("${source.spec.}", ""), refused: []string{"spec.worker.env[0].value"}},
		"Delete":       {reason: "Whatever is wrong, it may go.", operation: admissionv1.Delete, raw: ""},
		"UnknownField": {reason: "A field that this version does not know is refused at its path.", raw: object("x", `, "hostNetwork": true`), refused: []string{"spec.worker.hostNetwork"}},
		"Twice":        {reason: "And so is one that is given twice.", raw: object("x", `, "image": "b"`), refused: []string{"spec.worker.image"}},
		"NoSchema": {
			reason: "Without a schema types are left to rendering.", raw: object("${source.spec.filename}", ""),
			found: func(f *finder) { f.found.Schema = nil },
		},
		"NoKind": {
			reason: "A kind that does not exist yet is warned about.", raw: object("${source.spec.fileName}", ""),
			found: func(f *finder) { f.found = definition.Definition{} }, warned: "Hello.hello.k8s.io",
		},
		"LookUpFails": {
			reason: "A look-up that fails neither refuses nor warns.", raw: object("${source.spec.fileName}", ""),
			found: func(f *finder) { f.found, f.err = definition.Definition{}, errors.New("boom") },
		},
		"Socket": {reason: "A plugin beside the manager passes, it need not run yet.", raw: pluginObject(`{"socket": "/run/sluice/hello.sock"}`, "")},
		"SocketElsewhere": {
			reason: "No side-car can listen elsewhere.", raw: pluginObject(`{"socket": "/tmp/hello.sock"}`, ""),
			refused: []string{"spec.plugin.socket"},
		},
		"Service": {reason: "A plugin behind a Service passes.", raw: pluginObject(service(t, authority(t)), "")},
		"NoAuthority": {
			reason: "A bundle that holds no certificate could never be verified by.", raw: pluginObject(service(t, []byte("not PEM")), ""),
			refused: []string{"spec.plugin.service.caBundle"},
		},
		"Nowhere": {reason: "A plugin is somewhere.", raw: pluginObject(`{}`, ""), refused: []string{"spec.plugin"}},
		"Both": {
			reason: "It is in one place.", raw: pluginObject(strings.Replace(service(t, authority(t)), "{", `{"socket": "/run/sluice/x.sock", `, 1), ""),
			refused: []string{"spec.plugin.socket"},
		},
		"WorkerAndPlugin": {
			reason: "There is one way to fill.", raw: pluginObject(`{"socket": "/run/sluice/x.sock"}`, `, "worker": {"image": "busybox"}`),
			refused: []string{"spec.plugin"},
		},
		"PluginRule": {
			reason: "A plugin's Populator has rules of its own, too.", raw: pluginObject(`{"socket": "/run/sluice/x.sock"}`, `, "validations": [{"rule": "source.spec.", "message": "m"}]`),
			refused: []string{"spec.validations[0].rule"},
		},
		"PluginUnknownField": {
			reason: "A mistyped field of a plugin is refused at its path.", raw: pluginObject(`{"socket": "/run/sluice/x.sock", "sokcet": "y"}`, ""),
			refused: []string{"spec.plugin.sokcet"},
		},
		"OnItsWay": {
			reason: "A Populator on its way out may lose its finalizers.", operation: admissionv1.Update,
			raw: strings.Replace(object("${", ""), `"name": "hello"`, `"name": "hello", "deletionTimestamp": "2026-01-01T00:00:00Z"`, 1),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := finder{found: hellos(t)}
			if tc.found != nil {
				tc.found(&f)
			}
			if tc.operation == "" {
				tc.operation = admissionv1.Create
			}
			r := (&Handler{Definitions: f}).Handle(t.Context(), request(tc.operation, tc.raw))
			var got []string
			if !r.Allowed {
				if r.Result.Code != 422 || r.Result.Details == nil {
					t.Fatalf("%s\nrefused with %+v, want a status Invalid with details", tc.reason, r.Result)
				}
				for _, c := range r.Result.Details.Causes {
					got = append(got, c.Field)
				}
			}
			if diff := cmp.Diff(tc.refused, got); diff != "" {
				t.Errorf("%s\nrefused fields: -want, +got:\n%s", tc.reason, diff)
			}
			switch {
			case tc.warned == "" && len(r.Warnings) > 0, tc.warned != "" && (len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], tc.warned)):
				t.Errorf("%s\nwarnings %q, want %q", tc.reason, r.Warnings, tc.warned)
			}
		})
	}
}

func TestHandleGarbage(t *testing.T) {
	r := (&Handler{Definitions: finder{}}).Handle(t.Context(), request(admissionv1.Create, "{"))
	if r.Allowed || r.Result.Code != 400 {
		t.Errorf("Handle: %+v, want a bad request", r)
	}
}
