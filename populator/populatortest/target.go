package populatortest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/uuid"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// Target is a plugin under test, and what it is to be tested with.
type Target struct {
	// Address of the plugin, as gRPC has it: "unix:/run/sluice/x.sock" or
	// "dns:///host:9443".
	Address string
	// DialOptions are for plugins that want TLS. Default: no encryption.
	DialOptions []grpc.DialOption

	// Source is a source, as JSON, that the plugin fills from, soon and without
	// failing. Required.
	Source []byte
	// Invalid is a source, as JSON, that the plugin refuses. Optional.
	Invalid []byte
	// Slow is a source that a fill takes at least ten seconds for, and better
	// much longer: it is cancelled. Optional, for plugins that fill.
	Slow []byte
	// Failing is a source that a fill ends with a failure for. Optional, for
	// plugins that fill.
	Failing []byte

	// Volume returns a volume to fill, a new one for each call. Default: a made-up
	// volume of a CSI driver that does not exist.
	Volume func() (*populatorv1.Volume, error)
	// Filled says whether the volume holds what Source says. Optional.
	Filled func(*populatorv1.Volume) error
	// Fingerprint tells what is in a volume, in any form that changes with it, so
	// that it is seen whether something still writes. Optional.
	Fingerprint func(*populatorv1.Volume) (string, error)
	// Begun tells how often the plugin has begun to write for a fill's id.
	// Optional.
	Begun func(id string) (int, error)

	// Restart ends the plugin as a crash does, without any warning, and starts it
	// again with what it keeps on its disk. It returns when the new one listens or
	// soon will. Optional.
	Restart func(ctx context.Context) error

	// FillTimeout is how long a fill of Source, or the clean-up of one, may take.
	// Default: one minute.
	FillTimeout time.Duration
}

// maxResponse is what an answer may take.
const maxResponse = 1 << 20

// callTimeout is the deadline of a call, about as the manager's.
const callTimeout = 5 * time.Second

// session is one connection to a target.
type session struct {
	Target
	conn   *grpc.ClientConn
	client populatorv1.PopulatorClient
	info   *populatorv1.GetInfoResponse
}

func connect(ctx context.Context, target Target) (*session, error) {
	if target.FillTimeout == 0 {
		target.FillTimeout = time.Minute
	}
	if target.Volume == nil {
		target.Volume = madeUpVolume
	}
	options := target.DialOptions
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	options = append(options,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		// A plugin that was restarted is found again soon.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}),
	)
	conn, err := grpc.NewClient(target.Address, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to plugin: %w", err)
	}
	s := &session{Target: target, conn: conn, client: populatorv1.NewPopulatorClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.info, err = s.client.GetInfo(ctx, &populatorv1.GetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("ask plugin at %q who it is: %w", target.Address, err)
	}
	return s, nil
}

func (s *session) close() error { return s.conn.Close() }

// restart restarts the plugin and waits until it answers.
func (s *session) restart(t T) {
	t.Helper()
	if s.Restart == nil {
		t.Skipf("the target cannot be restarted")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatalf("restart plugin: %v", err)
	}
	s.conn.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// A call that is under way on the old connection fails with it.
		_, err := s.client.GetInfo(ctx, &populatorv1.GetInfoRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the plugin does not answer after a restart: %v", err)
		}
	}
}

// can says whether the plugin has a capability.
func (s *session) can(c populatorv1.Capability) bool {
	for _, has := range s.info.GetCapabilities() {
		if has == c {
			return true
		}
	}
	return false
}

// source makes a source of JSON for a case of its own.
func source(t T, object []byte) *populatorv1.Source {
	t.Helper()
	var o struct {
		Metadata struct {
			Namespace  string `json:"namespace"`
			Name       string `json:"name"`
			UID        string `json:"uid"`
			Generation int64  `json:"generation"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		t.Fatalf("the target's source is no JSON: %v", err)
	}
	return &populatorv1.Source{
		Json: object, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Uid: o.Metadata.UID, Generation: o.Metadata.Generation,
	}
}

// optional is source, for one that the target need not have.
func optional(t T, object []byte, name string) *populatorv1.Source {
	t.Helper()
	if len(object) == 0 {
		t.Skipf("the target has no %s source", name)
	}
	return source(t, object)
}

func (s *session) volume(t T) *populatorv1.Volume {
	t.Helper()
	v, err := s.Volume()
	if err != nil {
		t.Fatalf("make a volume: %v", err)
	}
	return v
}

func claim() *populatorv1.Claim {
	return &populatorv1.Claim{
		Namespace: "conformance", Name: "claim", Uid: newID(),
		Labels:      map[string]string{"app": "conformance"},
		Annotations: map[string]string{"example.com/team": "conformance"},
		SpecJson:    []byte(`{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"standard","volumeMode":"Filesystem"}`),
	}
}

func newID() string { return string(uuid.NewUUID()) }

func madeUpVolume() (*populatorv1.Volume, error) {
	id := newID()
	return &populatorv1.Volume{
		Name: "pvc-" + id, CsiDriver: "conformance.example.com", CsiHandle: "volume-" + id,
		CsiAttributes: map[string]string{"pool": "conformance"}, CapacityBytes: 1 << 30, FsType: "ext4",
	}, nil
}
