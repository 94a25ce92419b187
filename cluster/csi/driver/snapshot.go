package driver

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
	"github.com/sluice-dev/sluice/cluster/csi/state"
)

// CreateSnapshot copies a volume as it is at one moment. The snapshot is ready
// when the call returns.
func (c *controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := required("name", req.GetName(), "source volume ID", req.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	id := state.SnapshotID(req.GetName())
	unlock, err := c.store.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := c.store.Snapshot(id)
	switch {
	case err == nil:
		if old.Volume != req.GetSourceVolumeId() {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot %q exists and is of volume %q", req.GetName(), old.Volume)
		}
		return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(old)}, nil
	case !errors.Is(err, state.ErrNotFound):
		return nil, err
	}

	v, unlockVolume, err := c.locked(ctx, req.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlockVolume()
	from, image := c.store.VolumeImage(v.ID), c.store.SnapshotImage(id)
	temp := state.TempImage(image)
	snapshot := state.Snapshot{ID: id, Name: req.GetName(), Volume: v.ID, Size: v.Size, Content: v.Content}
	err = disk.Consistent(ctx, from, func() error {
		snapshot.Created = c.now().UTC()
		return disk.Copy(ctx, from, temp, v.Size)
	})
	if err != nil {
		return nil, err
	}
	if err := os.Rename(temp, image); err != nil {
		return nil, fmt.Errorf("put image of snapshot %q in place: %w", id, err)
	}
	if err := c.store.PutSnapshot(snapshot); err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(snapshot)}, nil
}

// DeleteSnapshot removes a snapshot. One that is gone is fine.
func (c *controller) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := required("snapshot ID", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	unlock, err := c.store.Lock(ctx, req.GetSnapshotId())
	if errors.Is(err, state.ErrNotFound) {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.store.DeleteSnapshot(req.GetSnapshotId()); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot returns one snapshot.
func (c *controller) GetSnapshot(_ context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if err := required("snapshot ID", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	snapshot, err := c.store.Snapshot(req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshotMessage(snapshot)}, nil
}

func snapshotMessage(s state.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.Volume, SizeBytes: s.Size,
		CreationTime: timestamppb.New(s.Created), ReadyToUse: true,
	}
}
