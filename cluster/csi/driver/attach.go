package driver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/state"
)

// ControllerPublishVolume attaches a volume to a node. A node that cannot reach
// it is refused, and so is a second node where the access mode allows one only:
// what Kubernetes placed wrongly stays stuck, as it would in a data centre.
func (c *controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId(), "node ID", req.GetNodeId()); err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, unlock, err := c.locked(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	n, known, err := c.node(req.GetNodeId())
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, status.Errorf(codes.NotFound, "node %q is not known to the driver", req.GetNodeId())
	}
	if !v.Location.ReachedBy(n) {
		return nil, refused("node %q cannot reach volume %q, which is at %s", n.ID, v.ID, v.Location)
	}

	mode := req.GetVolumeCapability().GetAccessMode().GetMode()
	wanted := state.Publication{Mode: mode.String(), ReadOnly: req.GetReadonly()}
	if is, attached := v.Published[n.ID]; attached {
		if is != wanted {
			return nil, status.Errorf(codes.AlreadyExists, "volume %q is attached to node %q in another way: mode %s, read-only %t",
				v.ID, n.ID, is.Mode, is.ReadOnly)
		}
		return &csi.ControllerPublishVolumeResponse{}, nil
	}
	for other, is := range v.Published {
		if exclusive(mode) || exclusive(modeOf(is)) {
			return nil, refused("volume %q is attached to node %q, and its access mode allows no second one", v.ID, other)
		}
	}
	if v.Published == nil {
		v.Published = map[string]state.Publication{}
	}
	v.Published[n.ID] = wanted
	if err := c.store.PutVolume(v); err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func modeOf(p state.Publication) csi.VolumeCapability_AccessMode_Mode {
	return csi.VolumeCapability_AccessMode_Mode(csi.VolumeCapability_AccessMode_Mode_value[p.Mode])
}

// ControllerUnpublishVolume detaches a volume from a node, or from all without
// a node ID. What is gone is detached.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId()); err != nil {
		return nil, err
	}
	v, unlock, err := c.locked(ctx, req.GetVolumeId())
	if errors.Is(err, state.ErrNotFound) {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	before := len(v.Published)
	if node := req.GetNodeId(); node == "" {
		clear(v.Published)
	} else {
		delete(v.Published, node)
	}
	if len(v.Published) != before {
		if err := c.store.PutVolume(v); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ValidateVolumeCapabilities says whether a volume can be used in these ways.
func (c *controller) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := required("volume ID", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume capability is missing")
	}
	if _, err := c.volume(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
		MutableParameters:  req.GetMutableParameters(),
	}}, nil
}
