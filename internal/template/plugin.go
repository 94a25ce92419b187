package template

import (
	"crypto/x509"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// socketDir is the directory that the manager shares with its side-cars.
const socketDir = "/run/sluice/"

// checkPlugin says what keeps a plugin from ever being reached, however well it
// runs.
func checkPlugin(p *v1alpha1.Plugin, path *field.Path) field.ErrorList {
	switch {
	case p.Service != nil && p.Socket != "":
		return field.ErrorList{field.Forbidden(path.Child("socket"), "exactly one of service and socket must be set, and service is")}
	case p.Service == nil && p.Socket == "":
		return field.ErrorList{field.Required(path, "exactly one of service and socket must be set")}
	case p.Service == nil:
		if name, ok := strings.CutPrefix(p.Socket, socketDir); !ok || name == "" || strings.Contains(name, "/") {
			return field.ErrorList{field.Invalid(path.Child("socket"), p.Socket, "must be a file in "+socketDir+", the directory that side-cars of the manager share with it")}
		}
		return nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM(p.Service.CABundle) {
		return field.ErrorList{field.Invalid(path.Child("service", "caBundle"), shorten(string(p.Service.CABundle)),
			"must hold, as PEM, the certificate of the authority that signed the plugin's")}
	}
	return nil
}
