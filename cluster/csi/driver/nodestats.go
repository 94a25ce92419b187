package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
)

// NodeGetVolumeStats tells how full a published volume is.
func (n *node) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume ID", req.GetVolumeId(), "volume path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	v, err := n.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	d, block, err := n.shownAt(v.ID, req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	if block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.Size}}}, nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(req.GetVolumePath(), &fs); err != nil {
		return nil, fmt.Errorf("stat file system on %s: %w", d.Path, err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(fs.Blocks) * fs.Bsize,
			Available: int64(fs.Bavail) * fs.Bsize, Used: int64(fs.Blocks-fs.Bfree) * fs.Bsize,
		},
		{
			Unit: csi.VolumeUsage_INODES, Total: int64(fs.Files),
			Available: int64(fs.Ffree), Used: int64(fs.Files - fs.Ffree),
		},
	}}, nil
}

// NodeExpandVolume makes the device, and the file system on it, as large as the
// volume.
func (n *node) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId(), "volume path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	v, unlock, err := n.locked(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if least := req.GetCapacityRange().GetRequiredBytes(); least > v.Size {
		return nil, status.Errorf(codes.OutOfRange, "volume %q has %d bytes, not %d: the controller expands it first", v.ID, v.Size, least)
	}
	d, block, err := n.shownAt(v.ID, req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	if err := d.Refresh(); err != nil {
		return nil, err
	}
	if !block && v.Content.FileSystemSize < v.Size {
		if err := disk.Grow(ctx, d.Loop, req.GetVolumePath(), disk.FSKind(v.Content.FileSystem)); err != nil {
			return nil, err
		}
		v.Content.FileSystemSize = v.Size
		if err := n.store.PutVolume(v); err != nil {
			return nil, err
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Size}, nil
}

// shownAt returns the volume's device, held open, and whether it is the device
// itself, rather than its file system, that is shown at the path.
func (n *node) shownAt(id, path string) (d *disk.Device, block bool, err error) {
	absent := status.Errorf(codes.NotFound, "volume %q is not at %q", id, path)
	d, ok, err := disk.Open(n.store.VolumeImage(id))
	if err != nil {
		return nil, false, err
	}
	if !ok {
		return nil, false, absent
	}
	if d.IsNode(path) {
		return d, true, nil
	}
	m, mounted, err := disk.MountedAt(path)
	if err == nil && (!mounted || m.Dev != d.Dev()) {
		err = absent
	}
	if err != nil {
		return nil, false, errors.Join(err, d.Close())
	}
	return d, false, nil
}
