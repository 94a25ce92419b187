package driver

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// answerMargin is how long before its deadline a waiting call gives up, so that
// the caller gets the answer instead of a time-out.
const answerMargin = 250 * time.Millisecond

// ControllerModifyVolume changes a volume's parameters. A move begins with the
// first call and goes on by itself, through crashes too; calls wait for its end
// as long as their deadline allows, and then say Aborted: try again. A call for
// another target during a move is Aborted at once.
func (c *controller) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId()); err != nil {
		return nil, err
	}
	change, err := topology.ParseMutable(req.GetMutableParameters())
	if err != nil {
		return nil, invalid("%s", err)
	}
	migration, err := c.beginChange(ctx, req.GetVolumeId(), change)
	if err != nil {
		return nil, err
	}
	if migration != nil {
		if err := c.await(ctx, req.GetVolumeId(), *migration); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// beginChange makes the change, or starts the migration that makes it and
// returns that. A migration to the same place that is under way is joined.
func (c *controller) beginChange(ctx context.Context, id string, change topology.Change) (*state.Migration, error) {
	v, unlock, err := c.locked(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	nodes, err := c.store.Nodes()
	if err != nil {
		return nil, err
	}
	target, err := change.Apply(v.Location, nodes)
	if err != nil {
		return nil, invalid("%s", err)
	}
	if m := v.Migration; m != nil {
		if m.Target != target {
			return nil, status.Errorf(codes.Aborted, "volume %q is moving to %s until %s", id, m.Target, m.End.Format(time.RFC3339))
		}
		return m, nil
	}
	if change.IOPS != nil {
		v.IOPS = *change.IOPS
	}
	if target != v.Location {
		now := c.now().UTC()
		v.Migration = &state.Migration{Target: target, Start: now, End: now.Add(change.Duration)}
	}
	if err := c.store.PutVolume(v); err != nil {
		return nil, err
	}
	return v.Migration, nil
}

// await returns when the migration has ended.
func (c *controller) await(ctx context.Context, id string, m state.Migration) error {
	left := m.End.Sub(c.now())
	if left <= 0 {
		return nil
	}
	end := time.NewTimer(left)
	defer end.Stop()
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-answerMargin))
		defer cancel()
	}
	select {
	case <-end.C:
		return nil
	case <-ctx.Done():
		return status.Errorf(codes.Aborted, "volume %q is moving to %s until %s", id, m.Target, m.End.Format(time.RFC3339))
	}
}

// ControllerExpandVolume makes a volume's image larger. The node that has it
// does the rest.
func (c *controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetCapacityRange() == nil {
		return nil, invalid("capacity range is missing")
	}
	v, unlock, err := c.locked(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	size, err := sizeFrom(req.GetCapacityRange(), v.Size)
	if err != nil {
		return nil, err
	}
	if size > v.Size {
		if err := disk.GrowImage(c.store.VolumeImage(v.ID), size); err != nil {
			return nil, err
		}
		v.Size = size
		if err := c.store.PutVolume(v); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Size, NodeExpansionRequired: true}, nil
}
