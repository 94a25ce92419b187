package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// controller is the controller service.
type controller struct {
	csi.UnimplementedControllerServer
	*world
}

// controllerCapabilities is all that the controller can do.
var controllerCapabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
}

// ControllerGetCapabilities tells what the controller can do.
func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range controllerCapabilities {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// CreateVolume makes a volume, empty or from a source, in the first offered
// topology that can hold it. The volume exists once its record does, so an
// interrupted call is simply repeated.
func (c *controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := required("name", req.GetName()); err != nil {
		return nil, err
	}
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	wish, err := topology.ParseClass(req.GetParameters())
	if err != nil {
		return nil, invalid("%s", err)
	}
	change, err := topology.ParseMutable(req.GetMutableParameters())
	if err != nil {
		return nil, invalid("%s", err)
	}
	source, err := sourceOf(req.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}

	id := state.VolumeID(req.GetName())
	unlock, err := c.store.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := c.volume(id)
	switch {
	case err == nil:
		if !maps.Equal(old.Parameters, req.GetParameters()) || !fits(old.Size, req.GetCapacityRange()) || !sameSource(old.Source, source) {
			return nil, status.Errorf(codes.AlreadyExists, "volume %q exists and is not what is asked for", req.GetName())
		}
		return &csi.CreateVolumeResponse{Volume: volumeMessage(old)}, nil
	case !errors.Is(err, state.ErrNotFound):
		return nil, err
	}

	nodes, err := c.store.Nodes()
	if err != nil {
		return nil, err
	}
	location, err := topology.Choose(change.Over(wish), offersOf(req.GetAccessibilityRequirements()), nodes)
	if err != nil {
		return nil, err
	}
	v := state.Volume{
		ID: id, Name: req.GetName(), Created: c.now().UTC(), Location: location,
		Parameters: req.GetParameters(), Claim: claimOf(req.GetParameters()), Source: source,
	}
	if change.IOPS != nil {
		v.IOPS = *change.IOPS
	}
	if err := c.fill(ctx, &v, req.GetCapacityRange()); err != nil {
		return nil, err
	}
	if err := c.store.PutVolume(v); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: volumeMessage(v)}, nil
}

func sameSource(a, b *state.Source) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// fill makes the image of a new volume, and says in the record how large it is
// and what is on it.
func (c *controller) fill(ctx context.Context, v *state.Volume, r *csi.CapacityRange) error {
	image := c.store.VolumeImage(v.ID)
	temp := state.TempImage(image)
	switch {
	case v.Source == nil:
		size, err := newSize(r)
		if err != nil {
			return err
		}
		v.Size = size
		if err := disk.Create(temp, size); err != nil {
			return err
		}
	case v.Source.Snapshot != "":
		snapshot, err := c.store.Snapshot(v.Source.Snapshot)
		if err != nil {
			return err
		}
		unlock, err := c.store.Lock(ctx, snapshot.ID)
		if err != nil {
			return err
		}
		defer unlock()
		if v.Size, err = sizeFrom(r, snapshot.Size); err != nil {
			return err
		}
		v.Content = snapshot.Content
		if err := disk.Copy(ctx, c.store.SnapshotImage(snapshot.ID), temp, v.Size); err != nil {
			return err
		}
	default:
		unlock, err := c.store.Lock(ctx, v.Source.Volume)
		if err != nil {
			return err
		}
		defer unlock()
		origin, err := c.volume(v.Source.Volume)
		if err != nil {
			return err
		}
		if v.Size, err = sizeFrom(r, origin.Size); err != nil {
			return err
		}
		v.Content = origin.Content
		from := c.store.VolumeImage(origin.ID)
		if err := disk.Consistent(ctx, from, func() error { return disk.Copy(ctx, from, temp, v.Size) }); err != nil {
			return err
		}
	}
	if err := os.Rename(temp, image); err != nil {
		return fmt.Errorf("put image of volume %q in place: %w", v.ID, err)
	}
	return nil
}

// DeleteVolume removes a volume. One that is gone is fine, one that is attached
// is not.
func (c *controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId()); err != nil {
		return nil, err
	}
	v, unlock, err := c.locked(ctx, req.GetVolumeId())
	if errors.Is(err, state.ErrNotFound) {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if on := v.PublishedNodes(); len(on) > 0 {
		return nil, refused("volume %q is attached to %q", v.ID, on)
	}
	// A node that vanished leaves its device behind.
	if err := disk.Detach(c.store.VolumeImage(v.ID)); err != nil {
		return nil, err
	}
	if err := c.store.DeleteVolume(v.ID); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}
