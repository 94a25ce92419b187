// Package state keeps what the driver knows in files that its processes share:
// one JSON record per volume, snapshot and node, written atomically, and one
// sparse image per volume and snapshot. A record is the commit point: an image
// without a record does not exist for anybody.
package state

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// Volume is the record of a volume.
type Volume struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`

	// Parameters are the class's at creation, kept to recognise a repeated
	// request; Claim is "namespace/name" of the claim, where it was passed on.
	Parameters map[string]string `json:"parameters,omitempty"`
	Claim      string            `json:"claim,omitempty"`
	Source     *Source           `json:"source,omitempty"`
	IOPS       string            `json:"iops,omitempty"`

	// Content is what is on the volume.
	Content Content `json:"content"`

	// Location is where the volume was when the record was written. Readers
	// see the record through At, which has a finished migration behind it.
	Location  topology.Location `json:"location"`
	Migration *Migration        `json:"migration,omitempty"`

	// Published and Staged are keyed by node.
	Published map[string]Publication `json:"published,omitempty"`
	Staged    map[string]Staging     `json:"staged,omitempty"`
}

// Source is what a volume was made from.
type Source struct {
	Snapshot string `json:"snapshot,omitempty"`
	Volume   string `json:"volume,omitempty"`
}

// Content describes what is on a volume or snapshot.
type Content struct {
	// Used is set before anything can be written to the volume. Until then it
	// may be formatted without looking.
	Used bool `json:"used,omitempty"`
	// FileSystem is the kind of file system that the driver made, if any.
	FileSystem string `json:"fileSystem,omitempty"`
	// FileSystemSize is the volume size that the file system is made for.
	FileSystemSize int64 `json:"fileSystemSize,omitempty"`
}

// Migration is a move of a volume under way. The volume stays where it is until
// the end, and is at the target from then on.
type Migration struct {
	Target topology.Location `json:"target"`
	Start  time.Time         `json:"start"`
	End    time.Time         `json:"end"`
}

// Publication is a volume's attachment to a node.
type Publication struct {
	Mode     string `json:"mode"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Staging is a volume's device or file system in use on a node.
type Staging struct {
	Path  string `json:"path"`
	Block bool   `json:"block,omitempty"`
}

// At returns the volume as it is at the time: a migration that has ended is
// gone, and the volume at its target.
func (v Volume) At(now time.Time) Volume {
	if v.Migration != nil && !now.Before(v.Migration.End) {
		v.Location, v.Migration = v.Migration.Target, nil
	}
	return v
}

// PublishedNodes returns the nodes that the volume is attached to.
func (v Volume) PublishedNodes() []string { return slices.Sorted(maps.Keys(v.Published)) }

// CutOff returns the nodes that the volume is attached to but cannot reach any
// more, because it was moved under them.
func (v Volume) CutOff(nodes map[string]topology.Node) []string {
	var cut []string
	for _, id := range v.PublishedNodes() {
		if n, known := nodes[id]; known && !v.Location.ReachedBy(n) {
			cut = append(cut, id)
		}
	}
	return cut
}

// Snapshot is the record of a snapshot, ready from the moment that it exists.
type Snapshot struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Volume  string    `json:"volume"`
	Size    int64     `json:"size"`
	Content Content   `json:"content"`
	Created time.Time `json:"created"`
}

// VolumeID returns the ID of the volume of that name. It depends on nothing
// else, so that a repeated request finds what an interrupted one left.
func VolumeID(name string) string { return "vol-" + digest(name) }

// SnapshotID returns the ID of the snapshot of that name.
func SnapshotID(name string) string { return "snap-" + digest(name) }

func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:12])
}
