package driver_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/driver"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// use attaches, stages and publishes a volume on a node, and returns where a Pod
// would find it.
func (f *fixture) use(t *testing.T, volume, node string, c *csi.VolumeCapability) string {
	t.Helper()
	if err := f.attach(t, volume, node, c); err != nil {
		t.Fatal(err)
	}
	staging, err := f.stage(t, volume, node, c)
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(f.dir, "pods", node, volume)
	_, err = f.nodes[node].NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: staging, TargetPath: target, VolumeCapability: c,
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// leave undoes use.
func (f *fixture) leave(t *testing.T, volume, node string) {
	t.Helper()
	n := f.nodes[node]
	if _, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{
		VolumeId: volume, TargetPath: filepath.Join(f.dir, "pods", node, volume),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
		VolumeId: volume, StagingTargetPath: filepath.Join(f.dir, "staging", node, volume),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.controller.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node}); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	// O_CREATE on a device node would make a file where the device is missing.
	flags := os.O_WRONLY
	if _, err := os.Stat(path); err != nil {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	got := make([]byte, len(want))
	if _, err := f.Read(got); err != nil || string(got) != want {
		t.Errorf("%s: want %q, got %q, %v", filepath.Base(path), want, got, err)
	}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
	}}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}

func TestFileSystemLife(t *testing.T) {
	requireDisks(t)
	f := start(t, nodeA1, nodeA2)
	v := f.create(t, request("pvc-1", nodeA1, nil)).GetVolumeId()
	use := mountable(soleWriter)
	pod := f.use(t, v, "n-a1", use)
	write(t, filepath.Join(pod, "first"), "one")

	// A snapshot while the volume is in use has what was written, unsynced.
	snapshot, err := f.controller.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap-1", SourceVolumeId: v})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(pod, "second"), "two")
	clone := request("pvc-2", nodeA1, nil)
	clone.VolumeContentSource = fromVolume(v)
	cloned := f.create(t, clone).GetVolumeId()

	// Growing under a running Pod.
	const larger = 48 << 20
	grow := &csi.CapacityRange{RequiredBytes: larger}
	if _, err := f.controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: grow}); err != nil {
		t.Fatal(err)
	}
	if total := f.total(t, v, "n-a1", pod); total > 16<<20 {
		t.Errorf("want the file system as it was until the node expands it, got %d bytes", total)
	}
	online := true
	for range 2 {
		_, err := f.nodes["n-a1"].NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v, VolumePath: pod, CapacityRange: grow})
		if status.Code(err) == codes.FailedPrecondition {
			online = false // ext4 cannot be grown while mounted here
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if total := f.total(t, v, "n-a1", pod); online && total < 32<<20 {
		t.Errorf("want a larger file system, got %d bytes", total)
	}
	wantContent(t, filepath.Join(pod, "first"), "one")

	// The volume moves to another node with its data.
	f.leave(t, v, "n-a1")
	pod = f.use(t, v, "n-a2", use)
	wantContent(t, filepath.Join(pod, "second"), "two")
	if total := f.total(t, v, "n-a2", pod); total < 32<<20 {
		t.Errorf("want a larger file system after staging anew, got %d bytes", total)
	}
	f.leave(t, v, "n-a2")

	// A larger volume from the snapshot gets a larger file system by itself.
	restore := request("pvc-3", nodeA2, nil)
	restore.CapacityRange = grow
	restore.VolumeContentSource = fromSnapshot(snapshot.GetSnapshot().GetSnapshotId())
	restored := f.create(t, restore).GetVolumeId()
	pod = f.use(t, restored, "n-a2", use)
	wantContent(t, filepath.Join(pod, "first"), "one")
	if _, err := os.Stat(filepath.Join(pod, "second")); !os.IsNotExist(err) {
		t.Errorf("want what came after the snapshot not in it, got %v", err)
	}
	if total := f.total(t, restored, "n-a2", pod); total < 32<<20 {
		t.Errorf("want a larger file system, got %d bytes", total)
	}
	pod = f.use(t, cloned, "n-a1", use)
	wantContent(t, filepath.Join(pod, "second"), "two")
	f.leave(t, restored, "n-a2")
	f.leave(t, cloned, "n-a1")
}

// total is the size of the file system at the path.
func (f *fixture) total(t *testing.T, volume, node, path string) int64 {
	t.Helper()
	stats, err := f.nodes[node].NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volume, VolumePath: path})
	if err != nil {
		t.Fatal(err)
	}
	return stats.GetUsage()[0].GetTotal()
}

// TestXFS grows a file system under its user, and mounts a clone beside it.
func TestXFS(t *testing.T) {
	requireDisks(t)
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		t.Skip("needs xfsprogs")
	}
	f := start(t, nodeA1)
	use := mountable(soleWriter)
	use.GetMount().FsType = "xfs"
	req := request("pvc-1", nodeA1, nil)
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: 320 << 20}
	v := f.create(t, req).GetVolumeId()
	pod := f.use(t, v, "n-a1", use)
	write(t, filepath.Join(pod, "file"), "xfs")

	grow := &csi.CapacityRange{RequiredBytes: 400 << 20}
	if _, err := f.controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: grow}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.nodes["n-a1"].NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v, VolumePath: pod, CapacityRange: grow}); err != nil {
		t.Fatal(err)
	}
	before := f.total(t, v, "n-a1", pod)
	if before < 330<<20 {
		t.Errorf("want a larger file system, got %d bytes", before)
	}
	clone := request("pvc-2", nodeA1, nil)
	clone.CapacityRange = &csi.CapacityRange{RequiredBytes: 500 << 20}
	clone.VolumeContentSource = fromVolume(v)
	cloned := f.create(t, clone).GetVolumeId()
	copied := f.use(t, cloned, "n-a1", use)
	wantContent(t, filepath.Join(copied, "file"), "xfs")
	if total := f.total(t, cloned, "n-a1", copied); total <= before {
		t.Errorf("want the clone's file system larger than %d bytes, got %d", before, total)
	}
	wantCode(t, "stage as another file system", func() error {
		f.leave(t, cloned, "n-a1")
		if err := f.attach(t, cloned, "n-a1", use); err != nil {
			return err
		}
		_, err := f.stage(t, cloned, "n-a1", mountable(soleWriter))
		return err
	}(), codes.FailedPrecondition)
	f.leave(t, v, "n-a1")
}

func TestBlockLife(t *testing.T) {
	requireDisks(t)
	f := start(t, nodeA1, nodeB1)
	v := f.create(t, request("pvc-1", nodeA1, map[string]string{"placement": "regional"})).GetVolumeId()
	use := rawBlock(shared)
	one, two := f.use(t, v, "n-a1", use), f.use(t, v, "n-b1", use)
	write(t, one, "raw data")
	wantContent(t, two, "raw data")

	grow := &csi.CapacityRange{RequiredBytes: 32 << 20}
	if _, err := f.controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: grow}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.nodes["n-a1"].NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v, VolumePath: one, CapacityRange: grow}); err != nil {
		t.Fatal(err)
	}
	device, err := os.Open(two)
	if err != nil {
		t.Fatal(err)
	}
	if end, err := device.Seek(0, 2); err != nil || end != 32<<20 {
		t.Errorf("want a device of 32 MiB, got %d, %v", end, err)
	}
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}

	f.leave(t, v, "n-a1")
	wantContent(t, two, "raw data")
	clone := request("pvc-2", nodeB1, nil)
	clone.CapacityRange = grow
	clone.VolumeContentSource = fromVolume(v)
	cloned := f.create(t, clone).GetVolumeId()
	wantContent(t, f.use(t, cloned, "n-b1", rawBlock(soleWriter)), "raw data")

	// What is no file system must not be formatted over.
	f.leave(t, cloned, "n-b1")
	wantCode(t, "attach", f.attach(t, cloned, "n-b1", mountable(soleWriter)), codes.OK)
	_, err = f.stage(t, cloned, "n-b1", mountable(soleWriter))
	wantCode(t, "stage raw data as a file system", err, codes.FailedPrecondition)
	f.leave(t, v, "n-b1")
}

func TestOnePodOnly(t *testing.T) {
	requireDisks(t)
	f := start(t, nodeA1)
	for name, use := range map[string]*csi.VolumeCapability{"mount": mountable(onePod), "block": rawBlock(onePod)} {
		v := f.create(t, request("pvc-"+name, nodeA1, nil)).GetVolumeId()
		f.use(t, v, "n-a1", use)
		second := &csi.NodePublishVolumeRequest{
			VolumeId: v, StagingTargetPath: filepath.Join(f.dir, "staging", "n-a1", v),
			TargetPath: filepath.Join(f.dir, "pods", "second-"+name), VolumeCapability: use,
		}
		_, err := f.nodes["n-a1"].NodePublishVolume(t.Context(), second)
		wantCode(t, name+": publish to a second path", err, codes.FailedPrecondition)
		f.leave(t, v, "n-a1")
	}
}

// TestInterruptedFormat leaves a format half done and its node killed: the next
// try does it over, because nobody could have written to the volume.
func TestInterruptedFormat(t *testing.T) {
	requireDisks(t)
	f := start(t, nodeA1)
	v := f.create(t, request("pvc-1", nodeA1, nil)).GetVolumeId()
	image, err := os.OpenFile(f.store.VolumeImage(v), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := image.Write(bytes.Repeat([]byte("half"), 4096)); err != nil {
		t.Fatal(err)
	}
	if err := image.Close(); err != nil {
		t.Fatal(err)
	}
	pod := f.use(t, v, "n-a1", mountable(soleWriter))
	write(t, filepath.Join(pod, "file"), "x")
	f.leave(t, v, "n-a1")
}

// TestInterruptedCreate leaves what a controller leaves that is killed before a
// volume's record is written: the next one takes it away, and the request that
// is repeated succeeds.
func TestInterruptedCreate(t *testing.T) {
	f := start(t, nodeA1)
	image := f.store.VolumeImage(state.VolumeID("pvc-1"))
	for _, path := range []string{image, state.TempImage(image)} {
		if err := os.WriteFile(path, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.controller = csi.NewControllerClient(f.serve(t, driver.ControllerMode, topology.Node{}, filepath.Join(f.dir, "second.sock")))
	for _, path := range []string{image, state.TempImage(image)} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("want %s swept, got %v", filepath.Base(path), err)
		}
	}
	f.create(t, request("pvc-1", nodeA1, nil))
}
