package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HTTPSource is a file, or what is in an archive, that a web server has. A
// claim whose dataSourceRef names it is filled with that. It has no status: one
// source may fill many claims, and each one's Population says how it went.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=sluice
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Digest",type=string,priority=1,JSONPath=`.spec.digest`
// +kubebuilder:printcolumn:name="OnMissing",type=string,priority=1,JSONPath=`.spec.onMissing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HTTPSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is fetched. A change counts for claims that are filled
	// later, and starts failed ones again; claims that are Bound stay as they
	// are.
	// +required
	Spec HTTPSourceSpec `json:"spec"`
}

// HTTPSourceList is a list of HTTPSources.
//
// +kubebuilder:object:root=true
type HTTPSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HTTPSource `json:"items"`
}

// HTTPSourceSpec says what is fetched, how it is verified, and what becomes of
// it on the volume.
//
// +kubebuilder:validation:XValidation:rule="!has(self.extract) || (!has(self.fileName) && !has(self.fileMode))",message="fileName and fileMode are for a single file; an archive brings its own"
type HTTPSourceSpec struct {
	// url of the file: http or https. It holds no user or password; those
	// belong into the Secret of secretRef. Addresses of the node itself, of its
	// link and of metadata services of clouds are refused, also behind
	// redirects, unless the administrator allows them.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^https?://[^/?#\s]+`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^https?://[^/?#]*@')",message="url must not hold a user or password; name a Secret in secretRef"
	URL string `json:"url"`

	// digest that the file must have, as sha256:hex or sha512:hex. With it, an
	// error page or a damaged file is never taken for data: the claim is not
	// Bound, with reason DigestMismatch. Of an archive, it is the digest of the
	// archive. Default: any; the length is compared all the same.
	// +optional
	// +kubebuilder:validation:MaxLength=135
	// +kubebuilder:validation:Pattern=`^(sha256:[0-9a-fA-F]{64}|sha512:[0-9a-fA-F]{128})$`
	Digest string `json:"digest,omitempty"`

	// fileName on the volume, which may have parts: models/a.bin. Default: the
	// last part of the URL's path. On a volume of mode Block it is ignored.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/|//|/$|(^|/)[.][.]?(/|$)')",message="fileName must be a path below the volume, without . and .. in it"
	FileName string `json:"fileName,omitempty"`

	// fileMode of the file, in octal digits. Default "0644".
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[1-7][0-7]{0,2}$`
	FileMode string `json:"fileMode,omitempty"`

	// extract puts what is in the archive onto the volume, not the archive.
	// +optional
	Extract *ArchiveExtraction `json:"extract,omitempty"`

	// secretRef names a Secret of this namespace with credentials for the host
	// of url: username and password, or token; header.NAME for further headers;
	// tls.crt and tls.key for a client certificate; ca.crt for certificates to
	// trust. They are never sent to another host, also not on a redirect.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// caBundle holds certificates in PEM that are trusted beside the system's.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`

	// caConfigMapRef names a ConfigMap of this namespace that holds more such
	// certificates.
	// +optional
	CAConfigMapRef *ConfigMapKeyReference `json:"caConfigMapRef,omitempty"`

	// maxRedirects that are followed; from https to http none is. Default 10;
	// -1 follows none.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=50
	// +kubebuilder:validation:XValidation:rule="self != 0",message="-1 follows no redirect"
	MaxRedirects int32 `json:"maxRedirects,omitempty"`

	// onMissing says what becomes of a claim when the server answers that there
	// is no such file (404 or 410), or the file is empty. Fail, the default,
	// never binds it; Continue binds it to an empty volume and says so. A
	// server that cannot be reached, or refuses, is not one that has nothing.
	// +optional
	// +kubebuilder:default=Fail
	OnMissing OnMissing `json:"onMissing,omitempty"`
}

// ArchiveExtraction says how an archive becomes files.
type ArchiveExtraction struct {
	// format of the archive. Auto, the default, finds it out. Compression by
	// gzip, zstd, xz or bzip2 is always found out.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;Tar;Zip
	Format string `json:"format,omitempty"`

	// subPath takes only what is at and below this path in the archive, and
	// puts it without the path.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/|//|/$|(^|/)[.][.]?(/|$)')",message="subPath must be a path in the archive, without . and .. in it"
	SubPath string `json:"subPath,omitempty"`

	// stripComponents takes so many leading parts off each name, after subPath.
	// What has no more parts is left out. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	StripComponents int32 `json:"stripComponents,omitempty"`

	// unsupported says what becomes of devices, pipes, sockets, and links that
	// leave the volume. Refuse, the default, refuses the archive; Skip leaves
	// them out.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Skip
	Unsupported string `json:"unsupported,omitempty"`
}

// SecretReference names a Secret in the namespace of the source.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ConfigMapKeyReference names a key of a ConfigMap in the namespace of the
// source.
type ConfigMapKeyReference struct {
	// name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// key in the ConfigMap. Default ca.crt.
	// +optional
	// +kubebuilder:default=ca.crt
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// OnMissing says what becomes of a claim whose source has nothing.
//
// +kubebuilder:validation:Enum=Fail;Continue
type OnMissing string

// Values of OnMissing.
const (
	// OnMissingFail never binds the claim.
	OnMissingFail OnMissing = "Fail"
	// OnMissingContinue binds the claim to an empty volume.
	OnMissingContinue OnMissing = "Continue"
)
