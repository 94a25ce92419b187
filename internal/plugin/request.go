package plugin

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// maxSource is the largest source that a plugin is told of, as the contract
// states.
const maxSource = 2 << 20

// Reads are what a call needs to know that the planner does not.
type Reads interface {
	// Populator returns a Populator, nil if there is none.
	Populator(ctx context.Context, name string) (*v1alpha1.Populator, error)
	// Claim returns the claim of this UID, nil if it is gone or going.
	Claim(ctx context.Context, key types.NamespacedName, uid types.UID) (*corev1.PersistentVolumeClaim, error)
	// Source returns the claim's source as it stands, or a reason and a message
	// why it cannot be read, is not granted or not valid.
	Source(ctx context.Context, p *v1alpha1.Populator, claim *corev1.PersistentVolumeClaim) (source *unstructured.Unstructured, reason, message string, err error)
	// Volume returns a volume whole, nil if there is none.
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// request is a call with all that it is about.
type request struct {
	populate.CallPlugin
	source *populatorv1.Source
	claim  *populatorv1.Claim
	volume *populatorv1.Volume
}

// gather reads what a call is about. refused is why the call is not made.
func (c *Caller) gather(ctx context.Context, p *v1alpha1.Populator, call populate.CallPlugin) (r request, refused *populate.Answer, err error) {
	r.CallPlugin = call
	if call.Volume != "" {
		pv, err := c.reads.Volume(ctx, call.Volume)
		if err != nil {
			return r, nil, err
		}
		if pv != nil && pv.UID == call.VolumeUID {
			r.volume = volumeOf(pv)
		}
	}
	switch call.Call {
	case populate.CallStatus, populate.CallCleanup:
		return r, nil, nil
	case populate.CallStart:
		if r.volume == nil {
			return r, &populate.Answer{Failure: &populate.Failure{
				Reason: v1alpha1.ReasonVolumeLost, Message: fmt.Sprintf("Volume %q is gone", call.Volume),
			}}, nil
		}
	case populate.CallValidate, populate.CallMutate, populate.CallCompute:
	}
	claim, err := c.reads.Claim(ctx, types.NamespacedName{Namespace: call.Namespace, Name: call.Name}, call.ClaimUID)
	if err != nil {
		return r, nil, err
	}
	if claim == nil {
		return r, &populate.Answer{Reason: v1alpha1.ReasonPluginUnavailable, Unavailable: "The claim is being deleted"}, nil
	}
	source, reason, message, err := c.reads.Source(ctx, p, claim)
	switch {
	case err != nil:
		return r, nil, err
	case reason != "":
		return r, &populate.Answer{Reason: reason, Unavailable: message}, nil
	}
	if r.claim, err = claimOf(claim); err != nil {
		return r, nil, err
	}
	if r.source, err = sourceOf(source); err != nil {
		return r, nil, err
	}
	if len(r.source.GetJson()) > maxSource {
		return r, &populate.Answer{Failure: &populate.Failure{Reason: v1alpha1.ReasonInvalidSource, Permanent: true,
			Message: fmt.Sprintf("%s %q is larger than %d MiB", source.GetKind(), source.GetName(), maxSource>>20)}}, nil
	}
	return r, nil, nil
}

// send makes the call and reads its answer.
func (r request) send(ctx context.Context, client populatorv1.PopulatorClient) (populate.Answer, error) {
	switch r.Call {
	case populate.CallValidate:
		out, err := client.ValidateSource(ctx, &populatorv1.ValidateSourceRequest{Source: r.source})
		return validated(out), err
	case populate.CallMutate:
		out, err := client.MutatePrime(ctx, &populatorv1.MutatePrimeRequest{Source: r.source, Claim: r.claim})
		return mutated(out), err
	case populate.CallCompute:
		out, err := client.ComputeWorker(ctx, &populatorv1.ComputeWorkerRequest{Source: r.source, Claim: r.claim, Volume: r.volume})
		return computed(out), err
	case populate.CallStart:
		out, err := client.StartFill(ctx, &populatorv1.StartFillRequest{
			Id: r.ID, Source: r.source, Claim: r.claim, Volume: r.volume, Attempt: r.Attempt,
		})
		return filling(out.GetFill(), r.ID, r.volume.GetCsiHandle()), err
	case populate.CallStatus:
		out, err := client.GetFill(ctx, &populatorv1.GetFillRequest{Id: r.ID, Volume: r.volume})
		return filling(out.GetFill(), r.ID, r.volume.GetCsiHandle()), err
	case populate.CallCleanup:
		out, err := client.CleanupFill(ctx, &populatorv1.CleanupFillRequest{Id: r.ID, Volume: r.volume, HandedOver: r.HandedOver})
		return cleaned(out), err
	}
	return populate.Answer{}, fmt.Errorf("call plugin: there is no call %q", r.Call)
}

func volumeOf(pv *corev1.PersistentVolume) *populatorv1.Volume {
	capacity := pv.Spec.Capacity[corev1.ResourceStorage]
	v := &populatorv1.Volume{
		Name:          pv.Name,
		CapacityBytes: capacity.Value(),
		Block:         pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock,
	}
	if csi := pv.Spec.CSI; csi != nil {
		v.CsiDriver, v.CsiHandle, v.CsiAttributes, v.FsType = csi.Driver, csi.VolumeHandle, csi.VolumeAttributes, csi.FSType
	}
	return v
}

func claimOf(claim *corev1.PersistentVolumeClaim) (*populatorv1.Claim, error) {
	spec, err := json.Marshal(claim.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode claim %q: %w", claim.Namespace+"/"+claim.Name, err)
	}
	return &populatorv1.Claim{
		Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID),
		Labels: claim.Labels, Annotations: claim.Annotations, SpecJson: spec,
	}, nil
}

func sourceOf(source *unstructured.Unstructured) (*populatorv1.Source, error) {
	body, err := json.Marshal(source.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", source.GetKind(), source.GetName(), err)
	}
	return &populatorv1.Source{
		Json: body, Namespace: source.GetNamespace(), Name: source.GetName(), Uid: string(source.GetUID()), Generation: source.GetGeneration(),
	}, nil
}
