package populator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// Source is the object that a claim's dataSourceRef names.
type Source[S any] struct {
	// Object is the source, decoded. Fields that S does not have are ignored.
	Object S
	// JSON is the source as the API server has it.
	JSON []byte
	// Namespace, Name, UID and Generation are those of the object.
	Namespace  string
	Name       string
	UID        types.UID
	Generation int64
}

// Claim is the user's PersistentVolumeClaim, the one that will be bound.
type Claim struct {
	Namespace   string
	Name        string
	UID         types.UID
	Labels      map[string]string
	Annotations map[string]string
	Spec        corev1.PersistentVolumeClaimSpec
}

// Volume is the PersistentVolume that is to be filled. It was provisioned for
// this one purpose.
type Volume struct {
	// Name of the PersistentVolume.
	Name string
	// Driver and Handle name the volume to its storage; Attributes are what its
	// CSI driver noted when it made the volume.
	Driver     string
	Handle     string
	Attributes map[string]string
	// Capacity in bytes.
	Capacity int64
	// Block says that the volume is a device without a file system.
	Block bool
	// FSType is the file system that the driver formats the volume with, if it
	// says so.
	FSType string
}

// Provisioned says whether there is a volume yet.
func (v Volume) Provisioned() bool { return v.Name != "" }

// Request is a volume that is to be filled, for whom and from what.
type Request[S any] struct {
	Source Source[S]
	Claim  Claim
	Volume Volume
}

// decodeSource reads a source. Its errors are the source's fault and may be
// shown to its author.
func decodeSource[S any](in *populatorv1.Source) (Source[S], error) {
	s := Source[S]{
		JSON:       in.GetJson(),
		Namespace:  in.GetNamespace(),
		Name:       in.GetName(),
		UID:        types.UID(in.GetUid()),
		Generation: in.GetGeneration(),
	}
	if in == nil {
		return s, errors.New("request has no source")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(s.JSON, " \t\r\n"), []byte("{")) {
		return s, fmt.Errorf("decode source %q: not an object", s.Namespace+"/"+s.Name)
	}
	if err := json.Unmarshal(s.JSON, &s.Object); err != nil {
		return s, fmt.Errorf("decode source %q: %w", s.Namespace+"/"+s.Name, err)
	}
	return s, nil
}

func decodeClaim(in *populatorv1.Claim) (Claim, error) {
	c := Claim{
		Namespace:   in.GetNamespace(),
		Name:        in.GetName(),
		UID:         types.UID(in.GetUid()),
		Labels:      in.GetLabels(),
		Annotations: in.GetAnnotations(),
	}
	if len(in.GetSpecJson()) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(in.GetSpecJson(), &c.Spec); err != nil {
		return c, fmt.Errorf("decode spec of claim %q: %w", c.Namespace+"/"+c.Name, err)
	}
	return c, nil
}

func decodeVolume(in *populatorv1.Volume) Volume {
	return Volume{
		Name:       in.GetName(),
		Driver:     in.GetCsiDriver(),
		Handle:     in.GetCsiHandle(),
		Attributes: in.GetCsiAttributes(),
		Capacity:   in.GetCapacityBytes(),
		Block:      in.GetBlock(),
		FSType:     in.GetFsType(),
	}
}

// filling is what ComputeWorker and StartFill have in common.
type filling interface {
	GetSource() *populatorv1.Source
	GetClaim() *populatorv1.Claim
	GetVolume() *populatorv1.Volume
}

func decodeRequest[S any](in filling) (Request[S], error) {
	source, err := decodeSource[S](in.GetSource())
	if err != nil {
		return Request[S]{}, err
	}
	claim, err := decodeClaim(in.GetClaim())
	if err != nil {
		return Request[S]{}, err
	}
	return Request[S]{Source: source, Claim: claim, Volume: decodeVolume(in.GetVolume())}, nil
}
