package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InlineSource is a few small files that stand in the object itself, in a
// ConfigMap or in a Secret. A claim whose dataSourceRef names it is filled with
// them. It has no status: one source may fill many claims, and each one's
// Population says how it went.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=sluice
// +kubebuilder:printcolumn:name="ConfigMap",type=string,JSONPath=`.spec.configMap.name`
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.spec.secret.name`
// +kubebuilder:printcolumn:name="OnMissing",type=string,priority=1,JSONPath=`.spec.onMissing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InlineSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which files. A change counts for claims that are filled later,
	// and starts failed ones again; claims that are Bound stay as they are.
	// +required
	Spec InlineSourceSpec `json:"spec"`
}

// InlineSourceList is a list of InlineSources.
//
// +kubebuilder:object:root=true
type InlineSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InlineSource `json:"items"`
}

// InlineSourceSpec says which files a volume gets. Two files of one path are
// refused.
type InlineSourceSpec struct {
	// files that stand here. All of them together may have about 350 KiB.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=256
	Files []InlineFile `json:"files,omitempty"`

	// configMap of this namespace whose keys become files.
	// +optional
	ConfigMap *KeyedObject `json:"configMap,omitempty"`

	// secret of this namespace whose keys become files. Whoever may read the
	// volume may read them.
	// +optional
	Secret *KeyedObject `json:"secret,omitempty"`

	// onMissing says what becomes of a claim when there is no file at all, or
	// the ConfigMap, the Secret or a key of theirs does not exist. Fail, the
	// default, never binds it; Continue binds it to an empty volume and says so.
	// +optional
	// +kubebuilder:default=Fail
	OnMissing OnMissing `json:"onMissing,omitempty"`
}

// InlineFile is one file.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.content) && has(self.binaryContent))",message="at most one of content and binaryContent may be set"
type InlineFile struct {
	// path on the volume, which may have parts: etc/app.conf.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/|//|/$|(^|/)[.][.]?(/|$)')",message="path must be a path below the volume, without . and .. in it"
	Path string `json:"path"`

	// content of the file, as text. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Content string `json:"content,omitempty"`

	// binaryContent of the file, in base64.
	// +optional
	// +kubebuilder:validation:MaxLength=349528
	BinaryContent []byte `json:"binaryContent,omitempty"`

	// mode of the file, in octal digits. Default "0644".
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[1-7][0-7]{0,2}$`
	Mode string `json:"mode,omitempty"`
}

// KeyedObject is a ConfigMap or Secret, and which of its keys become files.
type KeyedObject struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// path of the directory on the volume that the files go into. Default: the
	// volume itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/|//|/$|(^|/)[.][.]?(/|$)')",message="path must be a path below the volume, without . and .. in it"
	Path string `json:"path,omitempty"`

	// mode of the files, in octal digits. Default "0644".
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[1-7][0-7]{0,2}$`
	Mode string `json:"mode,omitempty"`

	// items are the keys that become files. Default: all, each under its name.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=256
	Items []KeyedItem `json:"items,omitempty"`
}

// KeyedItem is one key that becomes a file.
type KeyedItem struct {
	// key in the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`

	// path of the file, below the object's. Default: the key.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/|//|/$|(^|/)[.][.]?(/|$)')",message="path must be a path below the volume, without . and .. in it"
	Path string `json:"path,omitempty"`

	// mode of the file, in octal digits. Default: the object's.
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[1-7][0-7]{0,2}$`
	Mode string `json:"mode,omitempty"`
}
