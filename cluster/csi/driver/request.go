package driver

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
	"github.com/sluice-dev/sluice/cluster/csi/state"
)

const (
	// defaultSize is the size of a volume that none is asked for.
	defaultSize = 1 << 30
	// maxSize is what ext4 holds with its usual block size.
	maxSize = 16 << 40
	// sizeStep is the unit that sizes are rounded up to.
	sizeStep = 4096
)

// invalid returns the status of a request that no repetition makes right.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// refused returns the status of a request that the state of things forbids.
func refused(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

// required reports the first argument that is missing. Arguments come in pairs
// of name and value.
func required(pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return invalid("%s is missing", pairs[i])
		}
	}
	return nil
}

// newSize returns the size of an empty volume for a range.
func newSize(r *csi.CapacityRange) (int64, error) {
	var floor int64
	if r.GetRequiredBytes() == 0 {
		floor = defaultSize
		if limit := r.GetLimitBytes(); limit > 0 {
			floor = min(floor, limit/sizeStep*sizeStep)
		}
	}
	return sizeFrom(r, floor)
}

// sizeFrom returns the smallest size that answers the range and is no smaller
// than the floor, the size of what the volume must hold.
func sizeFrom(r *csi.CapacityRange, floor int64) (int64, error) {
	least, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case least < 0 || limit < 0:
		return 0, invalid("the capacity range is negative")
	case limit > 0 && limit < least:
		return 0, invalid("the capacity limit %d is below the required %d", limit, least)
	case least > maxSize:
		return 0, status.Errorf(codes.OutOfRange, "%d bytes are more than the %d that a volume may have", least, int64(maxSize))
	}
	size := (max(least, floor) + sizeStep - 1) / sizeStep * sizeStep
	if size == 0 || (limit > 0 && size > limit) {
		return 0, status.Errorf(codes.OutOfRange, "a volume of %d bytes does not fit the limit of %d", size, limit)
	}
	return size, nil
}

// fits says whether a volume's size answers the range.
func fits(size int64, r *csi.CapacityRange) bool {
	return size >= r.GetRequiredBytes() && (r.GetLimitBytes() == 0 || size <= r.GetLimitBytes())
}

// checkCapabilities says why the driver cannot serve a volume in these ways.
func checkCapabilities(caps []*csi.VolumeCapability) error {
	if len(caps) == 0 {
		return invalid("volume capability is missing")
	}
	for _, c := range caps {
		if err := checkCapability(c); err != nil {
			return err
		}
	}
	return nil
}

func checkCapability(c *csi.VolumeCapability) error {
	if c == nil {
		return invalid("volume capability is missing")
	}
	if c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN {
		return invalid("access mode is missing")
	}
	switch {
	case c.GetBlock() != nil:
		return nil
	case c.GetMount() != nil:
		if _, err := disk.ParseFSKind(c.GetMount().GetFsType()); err != nil {
			return invalid("%s", err)
		}
		return nil
	}
	return invalid("access type is missing: want block or mount")
}

// exclusive says whether the mode allows the volume on one node only.
func exclusive(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return !slices.Contains([]csi.VolumeCapability_AccessMode_Mode{
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
	}, mode)
}

// offersOf lists the topologies of a request, the preferred ones first.
func offersOf(r *csi.TopologyRequirement) []map[string]string {
	var offers []map[string]string
	for _, t := range r.GetPreferred() {
		offers = append(offers, t.GetSegments())
	}
	for _, t := range r.GetRequisite() {
		offers = append(offers, t.GetSegments())
	}
	return offers
}

// volumeMessage renders a volume's record.
func volumeMessage(v state.Volume) *csi.Volume {
	m := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Size}
	if segments := v.Location.Segments(); len(segments) > 0 {
		m.AccessibleTopology = []*csi.Topology{{Segments: segments}}
	}
	switch {
	case v.Source == nil:
	case v.Source.Snapshot != "":
		m.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: v.Source.Snapshot},
		}}
	default:
		m.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.Source.Volume},
		}}
	}
	return m
}

// sourceOf reads a request's content source.
func sourceOf(s *csi.VolumeContentSource) (*state.Source, error) {
	switch t := s.GetType().(type) {
	case nil:
		if s != nil {
			return nil, invalid("the content source names neither snapshot nor volume")
		}
		return nil, nil
	case *csi.VolumeContentSource_Snapshot:
		return &state.Source{Snapshot: t.Snapshot.GetSnapshotId()}, required("source snapshot", t.Snapshot.GetSnapshotId())
	case *csi.VolumeContentSource_Volume:
		return &state.Source{Volume: t.Volume.GetVolumeId()}, required("source volume", t.Volume.GetVolumeId())
	default:
		return nil, fmt.Errorf("content source %T is not supported", t)
	}
}
