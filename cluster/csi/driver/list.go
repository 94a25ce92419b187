package driver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// ControllerGetVolume returns one volume, with where it is accessible now: a
// volume that is moving is still where it was.
func (c *controller) ControllerGetVolume(_ context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := required("volume ID", req.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := c.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: volumeMessage(v),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: v.PublishedNodes()},
	}, nil
}

// ListVolumes returns the volumes, page by page, the oldest first.
func (c *controller) ListVolumes(_ context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	volumes, err := c.volumesNow()
	if err != nil {
		return nil, err
	}
	page, next, err := paginate(volumes, positionOfVolume, req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range page {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{
			Volume: volumeMessage(v),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: v.PublishedNodes()},
		})
	}
	return resp, nil
}

// ListSnapshots returns the snapshots, page by page, the oldest first. The ID
// of a snapshot or volume that does not exist gives an empty list.
func (c *controller) ListSnapshots(_ context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	all, err := c.store.Snapshots()
	if err != nil {
		return nil, err
	}
	var wanted []state.Snapshot
	for _, s := range all {
		if id := req.GetSnapshotId(); id != "" && s.ID != id {
			continue
		}
		if id := req.GetSourceVolumeId(); id != "" && s.Volume != id {
			continue
		}
		wanted = append(wanted, s)
	}
	page, next, err := paginate(wanted, positionOfSnapshot, req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range page {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotMessage(s)})
	}
	return resp, nil
}

// ControllerGetVolumeHealth tells of a volume that was moved away from nodes it
// is attached to.
func (c *controller) ControllerGetVolumeHealth(_ context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if err := required("volume ID", req.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := c.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	nodes, err := c.nodesByID()
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: healthMessage(v, nodes)}, nil
}

// ControllerListVolumeHealth lists the volumes that were moved away from nodes
// they are attached to.
func (c *controller) ControllerListVolumeHealth(_ context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	volumes, err := c.volumesNow()
	if err != nil {
		return nil, err
	}
	nodes, err := c.nodesByID()
	if err != nil {
		return nil, err
	}
	var cut []state.Volume
	for _, v := range volumes {
		if len(v.CutOff(nodes)) > 0 {
			cut = append(cut, v)
		}
	}
	page, next, err := paginate(cut, positionOfVolume, req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, v := range page {
		resp.Entries = append(resp.Entries, healthMessage(v, nodes))
	}
	return resp, nil
}

// CutOffReason is the health reason of a volume that was moved away from nodes
// it is attached to.
const CutOffReason = "CutOff"

func healthMessage(v state.Volume, nodes map[string]topology.Node) *csi.VolumeHealth {
	health := &csi.VolumeHealth{VolumeId: v.ID}
	if cut := v.CutOff(nodes); len(cut) > 0 {
		health.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{
			Status:  csi.VolumeHealthErrorType_DEGRADED,
			Reason:  CutOffReason,
			Message: fmt.Sprintf("attached to %q, which cannot reach the volume at %s", cut, v.Location),
		}}
	}
	return health
}

// GetCapacity tells how much room there is in a topology: all that the state
// directory's file system has, or none where no node is.
func (c *controller) GetCapacity(_ context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	wish, err := topology.ParseClass(req.GetParameters())
	if err != nil {
		return nil, invalid("%s", err)
	}
	nodes, err := c.store.Nodes()
	if err != nil {
		return nil, err
	}
	if !capabilitiesServed(req.GetVolumeCapabilities()) || !placeable(wish, req.GetAccessibleTopology().GetSegments(), nodes) {
		return &csi.GetCapacityResponse{}, nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(c.store.Dir(), &fs); err != nil {
		return nil, fmt.Errorf("stat state directory: %w", err)
	}
	return &csi.GetCapacityResponse{AvailableCapacity: int64(fs.Bavail) * fs.Bsize}, nil
}

func capabilitiesServed(caps []*csi.VolumeCapability) bool {
	return len(caps) == 0 || checkCapabilities(caps) == nil
}

// placeable says whether a volume can be made in the segments, or anywhere
// without any, and reached from some node.
func placeable(wish topology.Location, segments map[string]string, nodes []topology.Node) bool {
	if len(segments) == 0 {
		return true
	}
	home, err := topology.Choose(wish, []map[string]string{segments}, nodes)
	return err == nil && slices.ContainsFunc(nodes, home.ReachedBy)
}

func (c *controller) volumesNow() ([]state.Volume, error) {
	volumes, err := c.store.Volumes()
	for i := range volumes {
		volumes[i] = volumes[i].At(c.now())
	}
	return volumes, err
}

func (c *controller) nodesByID() (map[string]topology.Node, error) {
	nodes, err := c.store.Nodes()
	byID := make(map[string]topology.Node, len(nodes))
	for _, n := range nodes {
		byID[n.ID] = n
	}
	return byID, err
}

// position orders the objects of a list by age. A token is the position of the
// last object of a page, so it stays good when that object is deleted and when
// new ones are made.
type position struct {
	created time.Time
	id      string
}

func positionOfVolume(v state.Volume) position     { return position{v.Created, v.ID} }
func positionOfSnapshot(s state.Snapshot) position { return position{s.Created, s.ID} }

func (p position) token() string { return strconv.FormatInt(p.created.UnixNano(), 10) + "/" + p.id }

func parseToken(token string) (position, error) {
	nanos, id, ok := strings.Cut(token, "/")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if !ok || err != nil {
		return position{}, status.Errorf(codes.Aborted, "token %q is none that the driver gave out", token)
	}
	return position{time.Unix(0, n).UTC(), id}, nil
}

// paginate returns the page of a sorted list that the token starts, and the
// token of the next one.
func paginate[T any](all []T, at func(T) position, token string, most int32) (page []T, next string, err error) {
	if most < 0 {
		return nil, "", invalid("max entries is negative")
	}
	if token != "" {
		last, err := parseToken(token)
		if err != nil {
			return nil, "", err
		}
		first := len(all)
		for i, v := range all {
			p := at(v)
			if c := p.created.Compare(last.created); c > 0 || (c == 0 && p.id > last.id) {
				first = i
				break
			}
		}
		all = all[first:]
	}
	if most > 0 && int(most) < len(all) {
		all = all[:most]
		next = at(all[most-1]).token()
	}
	return all, next, nil
}
