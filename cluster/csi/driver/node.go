package driver

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// node is the node service of one node.
//
// All nodes are one machine, so a volume has at most one loop device, which the
// nodes share: a volume that several nodes may use at once really is shared.
type node struct {
	csi.UnimplementedNodeServer
	*world
	self topology.Node
}

var nodeCapabilities = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
}

// NodeGetCapabilities tells what the node service can do.
func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range nodeCapabilities {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// NodeGetInfo tells who the node is and where.
func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId:             n.self.ID,
		AccessibleTopology: &csi.Topology{Segments: n.self.Segments()},
	}, nil
}

// usable says why the node may not use a volume now: it is not attached here,
// or it was moved out of reach since.
func (n *node) usable(v state.Volume) error {
	if _, attached := v.Published[n.self.ID]; !attached {
		return refused("volume %q is not attached to node %q", v.ID, n.self.ID)
	}
	if !v.Location.ReachedBy(n.self) {
		return refused("node %q cannot reach volume %q, which is at %s", n.self.ID, v.ID, v.Location)
	}
	return nil
}

// NodeStageVolume makes the volume's device, and mounts its file system at the
// staging path, after making it on first use.
func (n *node) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId(), "staging target path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, unlock, err := n.locked(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.usable(v); err != nil {
		return nil, err
	}
	if req.GetVolumeCapability().GetBlock() != nil {
		err = n.stageBlock(v, req.GetStagingTargetPath())
	} else {
		err = n.stageMount(ctx, v, req.GetStagingTargetPath(), req.GetVolumeCapability().GetMount())
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stageBlock makes the device. It stays until the last node unstages it.
func (n *node) stageBlock(v state.Volume, path string) error {
	// Said first: once there is a device, anything may be written to it.
	v.Content.Used = true
	if err := n.putStaging(v, state.Staging{Path: path, Block: true}); err != nil {
		return err
	}
	d, err := disk.Attach(n.store.VolumeImage(v.ID), false)
	if err != nil {
		return err
	}
	return errors.Join(d.Refresh(), d.Close())
}

// stageMount makes the device and mounts it. The device goes with its last mount.
func (n *node) stageMount(ctx context.Context, v state.Volume, path string, how *csi.VolumeCapability_MountVolume) (err error) {
	kind, err := disk.ParseFSKind(how.GetFsType())
	if err != nil {
		return invalid("%s", err)
	}
	d, err := disk.Attach(n.store.VolumeImage(v.ID), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if m, mounted, err := disk.MountedAt(path); err != nil {
		return err
	} else if mounted {
		if m.Dev != d.Dev() {
			return refused("another file system is mounted at %q", path)
		}
		return n.putStaging(v, state.Staging{Path: path})
	}
	if err := d.Refresh(); err != nil {
		return err
	}
	if err := n.format(ctx, &v, d.Loop, kind); err != nil {
		return err
	}
	if err := n.growUnmounted(ctx, &v, d.Loop, kind); err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("make staging folder: %w", err)
	}
	if err := disk.Mount(d.Loop, path, kind, how.GetMountFlags()); err != nil {
		return err
	}
	if v.Content.FileSystemSize < v.Size {
		switch err := disk.Grow(ctx, d.Loop, path, kind); {
		case err == nil:
			v.Content.FileSystemSize = v.Size
		case !errors.Is(err, disk.ErrOnlyUnmounted):
			return errors.Join(err, disk.Unmount(path))
		}
	}
	return n.putStaging(v, state.Staging{Path: path})
}

// growUnmounted makes the file system as large as the volume before it is
// mounted, unless another node has it mounted.
func (n *node) growUnmounted(ctx context.Context, v *state.Volume, l disk.Loop, kind disk.FSKind) error {
	if v.Content.FileSystemSize >= v.Size {
		return nil
	}
	mounts, err := disk.MountsOf(l.Dev())
	if err != nil || len(mounts) > 0 {
		return err
	}
	for other := range v.Staged {
		if other != n.self.ID {
			return nil // mounted there, perhaps in another mount namespace
		}
	}
	grown, err := disk.GrowUnmounted(ctx, l, kind)
	if grown && err == nil {
		v.Content.FileSystemSize = v.Size
	}
	return err
}

// format makes sure that there is a file system of the kind on the device. A
// volume that nobody could write to yet is formatted unseen, so that a format
// that was interrupted is done again; any other only if it is empty.
func (n *node) format(ctx context.Context, v *state.Volume, l disk.Loop, kind disk.FSKind) error {
	found := disk.Unformatted
	if v.Content.Used {
		var err error
		if found, err = disk.Probe(n.store.VolumeImage(v.ID)); err != nil {
			return err
		}
	}
	if found == disk.Unformatted {
		if err := disk.Format(ctx, l, kind); err != nil {
			return err
		}
		v.Content = state.Content{Used: true, FileSystem: string(kind), FileSystemSize: v.Size}
		return n.store.PutVolume(*v)
	}
	if found == kind {
		v.Content.FileSystem = string(kind)
		return nil
	}
	return refused("volume %q has a file system of kind %s, not %s", v.ID, found, kind)
}

func (n *node) putStaging(v state.Volume, s state.Staging) error {
	if v.Staged == nil {
		v.Staged = map[string]state.Staging{}
	}
	v.Staged[n.self.ID] = s
	return n.store.PutVolume(v)
}

// NodeUnstageVolume undoes NodeStageVolume. What is gone is unstaged.
func (n *node) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId(), "staging target path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	v, unlock, err := n.locked(ctx, req.GetVolumeId())
	gone := errors.Is(err, state.ErrNotFound)
	if err != nil && !gone {
		return nil, err
	}
	if !gone {
		defer unlock()
	}
	if err := disk.Unmount(req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if gone {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	if _, staged := v.Staged[n.self.ID]; staged {
		delete(v.Staged, n.self.ID)
		if err := n.store.PutVolume(v); err != nil {
			return nil, err
		}
	}
	if len(v.Staged) == 0 {
		// A file system's device has gone with its mount; a block device
		// goes now.
		if err := disk.Detach(n.store.VolumeImage(v.ID)); err != nil {
			return nil, err
		}
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume shows the staged volume at the target path.
func (n *node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	err := required("volume ID", req.GetVolumeId(), "target path", req.GetTargetPath(), "staging target path", req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, unlock, err := n.locked(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.usable(v); err != nil {
		return nil, err
	}
	l, ok, err := disk.Find(n.store.VolumeImage(v.ID))
	if err != nil {
		return nil, err
	}
	if _, staged := v.Staged[n.self.ID]; !staged || !ok {
		return nil, refused("volume %q is not staged on node %q", v.ID, n.self.ID)
	}
	block := req.GetVolumeCapability().GetBlock() != nil
	shown, err := publishedAt(l, block, req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	for _, m := range shown {
		if m.Path == req.GetTargetPath() {
			if m.ReadOnly != req.GetReadonly() {
				return nil, status.Errorf(codes.AlreadyExists, "volume %q is published at %q with read-only %t", v.ID, m.Path, m.ReadOnly)
			}
			return &csi.NodePublishVolumeResponse{}, nil
		}
	}
	if mode := req.GetVolumeCapability().GetAccessMode().GetMode(); len(shown) > 0 && mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return nil, refused("volume %q is published at %q, and its access mode allows no second path", v.ID, shown[0].Path)
	}
	if err := n.publish(l, block, req); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) publish(l disk.Loop, block bool, req *csi.NodePublishVolumeRequest) error {
	target := req.GetTargetPath()
	if block {
		if err := disk.MakeFile(target); err != nil {
			return err
		}
		return disk.Bind(l.Path, target, req.GetReadonly())
	}
	if m, mounted, err := disk.MountedAt(req.GetStagingTargetPath()); err != nil {
		return err
	} else if !mounted || m.Dev != l.Dev() {
		return refused("volume %q is not staged at %q", req.GetVolumeId(), req.GetStagingTargetPath())
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("make target folder: %w", err)
	}
	return disk.Bind(req.GetStagingTargetPath(), target, req.GetReadonly())
}

// publishedAt returns where the device or its file system is shown, apart from
// the staging path.
func publishedAt(l disk.Loop, block bool, staging string) ([]disk.MountPoint, error) {
	if block {
		return disk.BindsOf(l)
	}
	mounts, err := disk.MountsOf(l.Dev())
	var shown []disk.MountPoint
	for _, m := range mounts {
		if m.Path != staging {
			shown = append(shown, m)
		}
	}
	return shown, err
}

// NodeUnpublishVolume undoes NodePublishVolume. What is gone is unpublished.
func (n *node) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId(), "target path", req.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := disk.UnmountAndRemove(req.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
