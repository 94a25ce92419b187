package fault

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/sluice-dev/sluice/cluster/csi/state"
)

func faults(t *testing.T) (Set, string) {
	t.Helper()
	store, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return In(store), filepath.Join(store.Dir(), FileName)
}

func TestStrike(t *testing.T) {
	create := Call{Method: "CreateVolume", Node: "n-a1", Zone: "a", Volumes: []string{"pvc-1", "vol-1"}, Claim: "team/c1"}
	cases := map[string]struct {
		reason string
		fault  Fault
		at     Point
		hit    bool
	}{
		"Method":      {"A fault without conditions strikes every call of its method.", Fault{}, Before, true},
		"OtherMethod": {"Other calls are spared.", Fault{Method: "DeleteVolume"}, Before, false},
		"Node":        {"The node that the scheduler chose counts.", Fault{Node: "n-a1"}, Before, true},
		"OtherNode":   {"Other nodes are spared.", Fault{Node: "n-b1"}, Before, false},
		"Zone":        {"Zones count.", Fault{Zone: "a"}, Before, true},
		"OtherZone":   {"Other zones are spared.", Fault{Zone: "b"}, Before, false},
		"VolumeName":  {"A volume goes by its name.", Fault{Volume: "pvc-1"}, Before, true},
		"VolumeID":    {"A volume goes by its ID.", Fault{Volume: "vol-1"}, Before, true},
		"OtherVolume": {"Other volumes are spared.", Fault{Volume: "pvc-2"}, Before, false},
		"Claim":       {"A volume goes by its claim.", Fault{Claim: "team/c1"}, Before, true},
		"OtherClaim":  {"Other claims are spared.", Fault{Claim: "team/c2"}, Before, false},
		"NotYet":      {"A fault after the work does not strike before it.", Fault{When: After}, Before, false},
		"After":       {"A fault after the work strikes then.", Fault{When: After}, After, true},
		"DefaultIsBefore": {
			"Without a word a fault strikes before the work.", Fault{}, After, false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, _ := faults(t)
			f := tc.fault
			f.Name, f.Code = "f", Code(codes.ResourceExhausted)
			if f.Method == "" {
				f.Method = create.Method
			}
			if err := set.Add(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			got, hit, err := set.Strike(t.Context(), create, tc.at)
			if err != nil || hit != tc.hit {
				t.Fatalf("%s\nStrike(): want %t, got %t, %v", tc.reason, tc.hit, hit, err)
			}
			if diff := cmp.Diff(f, got); hit && diff != "" {
				t.Errorf("Strike(): -want, +got:\n%s", diff)
			}
		})
	}
}

// TestTimes has many calls race for a few strikes.
func TestTimes(t *testing.T) {
	set, path := faults(t)
	if err := set.Add(t.Context(), Fault{Name: "thrice", Method: "M", Times: 3, Delay: Duration(time.Second)}); err != nil {
		t.Fatal(err)
	}
	var strikes atomic.Int32
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			_, hit, err := set.Strike(t.Context(), Call{Method: "M"}, Before)
			if err != nil {
				t.Error(err)
			}
			if hit {
				strikes.Add(1)
			}
		})
	}
	group.Wait()
	if n := strikes.Load(); n != 3 {
		t.Errorf("want 3 strikes, got %d", n)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("want the file gone with the last fault, got %v", err)
	}
}

func TestAddReplaces(t *testing.T) {
	set, _ := faults(t)
	slow := Fault{Name: "f", Method: "M", Delay: Duration(time.Second)}
	failing := Fault{Name: "f", Method: "M", Code: Code(codes.Internal)}
	other := Fault{Name: "g", Method: "M", Code: Code(codes.Internal)}
	if err := set.Add(t.Context(), slow, other, failing); err != nil {
		t.Fatal(err)
	}
	got, err := set.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Fault{other, failing}, got); diff != "" {
		t.Errorf("List(): -want, +got:\n%s", diff)
	}
	if err := set.Remove(t.Context(), "f", "never-there"); err != nil {
		t.Fatal(err)
	}
	if err := set.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := set.List(); err != nil || len(got) > 0 {
		t.Errorf("want no faults, got %v, %v", got, err)
	}
}

func TestHandWritten(t *testing.T) {
	cases := map[string]struct {
		content string
		want    []Fault
		fails   bool
	}{
		"Valid": {
			content: `[{"name": "full", "method": "CreateVolume", "zone": "a", "code": "ResourceExhausted", "times": 2, "delay": "1m30s"}]`,
			want:    []Fault{{Name: "full", Method: "CreateVolume", Zone: "a", Code: Code(codes.ResourceExhausted), Times: 2, Delay: Duration(90 * time.Second)}},
		},
		"NoSuchCode":    {content: `[{"name": "f", "method": "M", "code": "Tired"}]`, fails: true},
		"NoEffect":      {content: `[{"name": "f", "method": "M"}]`, fails: true},
		"NoName":        {content: `[{"method": "M", "code": "Internal"}]`, fails: true},
		"NoMethod":      {content: `[{"name": "f", "code": "Internal"}]`, fails: true},
		"NoSuchPoint":   {content: `[{"name": "f", "method": "M", "code": "Internal", "when": "later"}]`, fails: true},
		"BadDelay":      {content: `[{"name": "f", "method": "M", "delay": "5"}]`, fails: true},
		"NotJSON":       {content: `oops`, fails: true},
		"MisspeltField": {content: `[{"name": "f", "method": "M", "code": "Internal", "nodes": "n"}]`, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, path := faults(t)
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := set.List()
			if tc.fails != (err != nil) {
				t.Fatalf("want error %t, got %v", tc.fails, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("List(): -want, +got:\n%s", diff)
			}
		})
	}
}
