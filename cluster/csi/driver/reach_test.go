package driver_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/driver"
	"github.com/sluice-dev/sluice/cluster/csi/fault"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

var (
	nodeA1 = topology.Node{ID: "n-a1", Zone: "a", Region: "r", Generations: []topology.Generation{topology.Gen1, topology.Gen2}}
	nodeA2 = topology.Node{ID: "n-a2", Zone: "a", Region: "r", Generations: []topology.Generation{topology.Gen1}}
	nodeB1 = topology.Node{ID: "n-b1", Zone: "b", Region: "r", Generations: []topology.Generation{topology.Gen1, topology.Gen2}}
)

const (
	soleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	onePod     = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	shared     = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

func mountable(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func rawBlock(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

// request is a request for a volume, at home where the node is.
func request(name string, at topology.Node, parameters map[string]string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, Parameters: parameters,
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 16 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{mountable(soleWriter)},
		AccessibilityRequirements: &csi.TopologyRequirement{
			Preferred: []*csi.Topology{{Segments: at.Segments()}},
		},
	}
}

func (f *fixture) create(t *testing.T, req *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	resp, err := f.controller.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetVolume()
}

func (f *fixture) attach(t *testing.T, volume, node string, c *csi.VolumeCapability) error {
	t.Helper()
	_, err := f.controller.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: volume, NodeId: node, VolumeCapability: c,
	})
	return err
}

func (f *fixture) stage(t *testing.T, volume, node string, c *csi.VolumeCapability) (string, error) {
	t.Helper()
	path := filepath.Join(f.dir, "staging", node, volume)
	_, err := f.nodes[node].NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: path, VolumeCapability: c,
	})
	return path, err
}

// modify asks for a change, and waits for its end no longer than that.
func (f *fixture) modify(t *testing.T, volume string, wait time.Duration, parameters map[string]string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err := f.controller.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: volume, MutableParameters: parameters})
	return err
}

// topologyOf asks both calls that tell where a volume is accessible.
func (f *fixture) topologyOf(t *testing.T, volume string) map[string]string {
	t.Helper()
	got, err := f.controller.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: volume})
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.controller.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	segments := got.GetVolume().GetAccessibleTopology()[0].GetSegments()
	for _, e := range list.GetEntries() {
		if e.GetVolume().GetVolumeId() != volume {
			continue
		}
		if diff := cmp.Diff(segments, e.GetVolume().GetAccessibleTopology()[0].GetSegments()); diff != "" {
			t.Errorf("ControllerGetVolume and ListVolumes differ:\n%s", diff)
		}
		return segments
	}
	t.Errorf("volume %q is not in the list", volume)
	return segments
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: want %s, got %v", what, want, err)
	}
}

func TestUnreachableNodesAreRefused(t *testing.T) {
	requireDisks(t)
	f := start(t, nodeA1, nodeA2, nodeB1)
	v := f.create(t, request("pvc-1", nodeA1, nil)).GetVolumeId()
	if diff := cmp.Diff(map[string]string{topology.ZoneKey: "a"}, f.topologyOf(t, v)); diff != "" {
		t.Errorf("topology: -want, +got:\n%s", diff)
	}
	use := mountable(soleWriter)

	wantCode(t, "attach in another zone", f.attach(t, v, "n-b1", use), codes.FailedPrecondition)
	wantCode(t, "attach to an unknown node", f.attach(t, v, "n-z", use), codes.NotFound)
	_, err := f.stage(t, v, "n-a1", use)
	wantCode(t, "stage before attaching", err, codes.FailedPrecondition)
	wantCode(t, "attach in the zone", f.attach(t, v, "n-a1", use), codes.OK)
	wantCode(t, "attach again", f.attach(t, v, "n-a1", use), codes.OK)
	wantCode(t, "attach otherwise", f.attach(t, v, "n-a1", mountable(shared)), codes.AlreadyExists)
	wantCode(t, "attach to a second node", f.attach(t, v, "n-a2", use), codes.FailedPrecondition)
	_, err = f.stage(t, v, "n-a2", use)
	wantCode(t, "stage on a node it is not attached to", err, codes.FailedPrecondition)
	_, err = f.stage(t, v, "n-a1", use)
	wantCode(t, "stage", err, codes.OK)
	_, err = f.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v})
	wantCode(t, "delete while attached", err, codes.FailedPrecondition)
}

func TestMigration(t *testing.T) {
	requireDisks(t)
	f := start(t, nodeA1, nodeA2, nodeB1)
	v := f.create(t, request("pvc-1", nodeA2, map[string]string{"generation": "gen1"})).GetVolumeId()
	use := mountable(soleWriter)
	wantCode(t, "attach", f.attach(t, v, "n-a2", use), codes.OK)
	staging, err := f.stage(t, v, "n-a2", use)
	wantCode(t, "stage", err, codes.OK)

	upgrade := map[string]string{"placement": "regional", "generation": "gen2", "migrationSeconds": "60"}
	before := map[string]string{topology.ZoneKey: "a", topology.Gen1.Key(): "true"}
	after := map[string]string{topology.RegionKey: "r", topology.Gen2.Key(): "true"}
	const glance = 300 * time.Millisecond
	wantCode(t, "a move takes its time", f.modify(t, v, glance, upgrade), codes.Aborted)
	wantCode(t, "asking again joins the move", f.modify(t, v, glance, upgrade), codes.Aborted)
	wantCode(t, "another target has to wait", f.modify(t, v, glance, map[string]string{"generation": "gen1", "placement": "zonal", "zone": "b"}), codes.Aborted)
	if diff := cmp.Diff(before, f.topologyOf(t, v)); diff != "" {
		t.Errorf("topology during the move: -want, +got:\n%s", diff)
	}

	// The move goes on while the controller is dead.
	f.clock.forward(time.Minute)
	f.controller = csi.NewControllerClient(f.serve(t, driver.ControllerMode, topology.Node{}, filepath.Join(f.dir, "second.sock")))
	if diff := cmp.Diff(after, f.topologyOf(t, v)); diff != "" {
		t.Errorf("topology after the move: -want, +got:\n%s", diff)
	}
	wantCode(t, "the move is done", f.modify(t, v, glance, upgrade), codes.OK)

	// n-a2 lacks the new generation.
	health, err := f.controller.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
	if err != nil || len(health.GetEntries()) != 1 || health.GetEntries()[0].GetHealthStatuses()[0].GetReason() != driver.CutOffReason {
		t.Errorf("want the volume reported as %s, got %v, %v", driver.CutOffReason, health, err)
	}
	_, err = f.nodes["n-a2"].NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v, StagingTargetPath: staging, TargetPath: filepath.Join(f.dir, "pod"), VolumeCapability: use,
	})
	wantCode(t, "publish on a node that was cut off", err, codes.FailedPrecondition)
	_, err = f.nodes["n-a2"].NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v, StagingTargetPath: staging})
	wantCode(t, "unstage on a node that was cut off", err, codes.OK)
	_, err = f.stage(t, v, "n-a2", use)
	wantCode(t, "stage on a node that was cut off", err, codes.FailedPrecondition)
	_, err = f.controller.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: "n-a2"})
	wantCode(t, "detach", err, codes.OK)
	wantCode(t, "attach where it reaches now", f.attach(t, v, "n-b1", use), codes.OK)

	back := map[string]string{"placement": "zonal", "generation": "gen1"}
	wantCode(t, "a move without duration is immediate", f.modify(t, v, glance, back), codes.OK)
	if diff := cmp.Diff(before, f.topologyOf(t, v)); diff != "" {
		t.Errorf("topology after moving back: -want, +got:\n%s", diff)
	}
}

func TestModifyWaitsForTheEnd(t *testing.T) {
	f := start(t, nodeA1)
	v := f.create(t, request("pvc-1", nodeA1, nil)).GetVolumeId()
	started := time.Now()
	wantCode(t, "modify", f.modify(t, v, 20*time.Second, map[string]string{"placement": "regional", "migrationSeconds": "1"}), codes.OK)
	if took := time.Since(started); took < time.Second {
		t.Errorf("want the call to last as long as the move, got %s", took)
	}
}

func TestFaults(t *testing.T) {
	f := start(t, nodeA1, nodeB1)
	add := func(faults ...fault.Fault) {
		t.Helper()
		if err := f.faults.Add(t.Context(), faults...); err != nil {
			t.Fatal(err)
		}
	}
	add(fault.Fault{Name: "full", Method: "CreateVolume", Node: "n-a1", Code: fault.Code(codes.ResourceExhausted), Times: 1})
	_, err := f.controller.CreateVolume(t.Context(), request("pvc-1", nodeA1, nil))
	wantCode(t, "create for the full node", err, codes.ResourceExhausted)
	f.create(t, request("pvc-2", nodeB1, nil))
	first := f.create(t, request("pvc-1", nodeA1, nil))

	add(fault.Fault{Name: "lost", Method: "CreateVolume", When: fault.After, Code: fault.Code(codes.Unavailable), Times: 1})
	_, err = f.controller.CreateVolume(t.Context(), request("pvc-3", nodeA1, nil))
	wantCode(t, "create with a lost answer", err, codes.Unavailable)
	v := f.create(t, request("pvc-3", nodeA1, nil))
	if volumes, err := f.store.Volumes(); err != nil || len(volumes) != 3 {
		t.Errorf("want a repeated request to make no second volume, got %d, %v", len(volumes), err)
	}

	add(fault.Fault{Name: "slow", Method: "CreateVolume", Volume: "pvc-4", Delay: fault.Duration(time.Hour)})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = f.controller.CreateVolume(ctx, request("pvc-4", nodeA1, nil))
	wantCode(t, "slow create", err, codes.DeadlineExceeded)

	add(fault.Fault{Name: "infeasible", Method: "ControllerModifyVolume", Volume: v.GetVolumeId(), Code: fault.Code(codes.InvalidArgument), Message: "no"})
	regional := map[string]string{"placement": "regional"}
	wantCode(t, "modify of the faulty volume", f.modify(t, v.GetVolumeId(), time.Second, regional), codes.InvalidArgument)
	wantCode(t, "modify of another", f.modify(t, first.GetVolumeId(), time.Second, regional), codes.OK)
	if diff := cmp.Diff(map[string]string{topology.ZoneKey: "a"}, f.topologyOf(t, v.GetVolumeId())); diff != "" {
		t.Errorf("a failed modify changes nothing: -want, +got:\n%s", diff)
	}
}

func TestCreateIsIdempotent(t *testing.T) {
	f := start(t, nodeA1, nodeB1)
	req := request("pvc-1", nodeA1, map[string]string{"placement": "zonal"})
	first := f.create(t, req)
	if again := f.create(t, req); again.GetVolumeId() != first.GetVolumeId() {
		t.Errorf("want %q again, got %q", first.GetVolumeId(), again.GetVolumeId())
	}
	other := request("pvc-1", nodeA1, map[string]string{"placement": "regional"})
	_, err := f.controller.CreateVolume(t.Context(), other)
	wantCode(t, "create the same name otherwise", err, codes.AlreadyExists)
	cloned := request("pvc-1", nodeA1, req.GetParameters())
	cloned.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: first.GetVolumeId()},
	}}
	_, err = f.controller.CreateVolume(t.Context(), cloned)
	wantCode(t, "create the same name from a source", err, codes.AlreadyExists)
	_, err = f.controller.CreateVolume(t.Context(), request("pvc-2", nodeA1, map[string]string{"placment": "zonal"}))
	wantCode(t, "create with a misspelt parameter", err, codes.InvalidArgument)
	_, err = f.controller.CreateVolume(t.Context(), request("pvc-3", nodeA2, map[string]string{"generation": "gen2"}))
	wantCode(t, "create where no node has the generation", err, codes.ResourceExhausted)

	// A lock that somebody holds is waited for, and then given up.
	unlock, err := f.store.Lock(t.Context(), state.VolumeID("pvc-4"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	held := make(chan error, 1)
	go func() {
		_, err := f.controller.CreateVolume(ctx, request("pvc-4", nodeA1, nil))
		held <- err
	}()
	unlock()
	wantCode(t, "create after another call on the volume", <-held, codes.OK)
}

func TestPagesSurviveChanges(t *testing.T) {
	f := start(t, nodeA1)
	for _, name := range []string{"pvc-1", "pvc-2", "pvc-3"} {
		f.create(t, request(name, nodeA1, nil))
	}
	page, err := f.controller.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2})
	if err != nil || len(page.GetEntries()) != 2 || page.GetNextToken() == "" {
		t.Fatalf("want a page of two and a token, got %v, %v", page, err)
	}
	for _, e := range page.GetEntries() {
		if _, err := f.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: e.GetVolume().GetVolumeId()}); err != nil {
			t.Fatal(err)
		}
	}
	f.create(t, request("pvc-4", nodeA1, nil))
	rest, err := f.controller.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: page.GetNextToken()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range rest.GetEntries() {
		got = append(got, e.GetVolume().GetVolumeId())
	}
	if diff := cmp.Diff([]string{state.VolumeID("pvc-3"), state.VolumeID("pvc-4")}, got); diff != "" {
		t.Errorf("second page: -want, +got:\n%s", diff)
	}
}
