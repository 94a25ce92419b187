package populatortest

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

var infoCases = []Case{
	{Name: "Info/Complete", Rule: "GetInfo tells a name, the source kinds and the capabilities, within the bounds of the contract.", run: infoComplete},
	{Name: "Info/OneWayToFill", Rule: "A plugin has exactly one of the capabilities COMPUTE_WORKER and FILL, and none twice.", run: infoOneWay},
	{Name: "Info/ServesTheSource", Rule: "The kind of the source is among those that GetInfo tells.", run: infoServes},
	{Name: "Info/Quick", Rule: "GetInfo answers within two seconds, and the same each time.", run: infoQuick},
	{Name: "Info/AfterRestart", Rule: "A plugin that was restarted says what it said before.", run: infoAfterRestart},
}

func infoComplete(t T, s *session) {
	i := s.info
	if i.GetName() == "" || len(i.GetName()) > 253 {
		t.Errorf("name has %d characters, want 1 to 253", len(i.GetName()))
	}
	if utf8.RuneCountInString(i.GetVersion()) > 64 {
		t.Errorf("version has %d characters, want at most 64", utf8.RuneCountInString(i.GetVersion()))
	}
	if n := len(i.GetSourceKinds()); n == 0 || n > 64 {
		t.Errorf("%d source kinds, want 1 to 64", n)
	}
	for _, k := range i.GetSourceKinds() {
		if k.GetGroup() == "" || len(k.GetGroup()) > 253 || k.GetKind() == "" || len(k.GetKind()) > 63 {
			t.Errorf("source kind has group %q and kind %q, want both, of at most 253 and 63 characters", k.GetGroup(), k.GetKind())
		}
	}
}

func infoOneWay(t T, s *session) {
	count := map[populatorv1.Capability]int{}
	for _, c := range s.info.GetCapabilities() {
		count[c]++
		if c == populatorv1.Capability_CAPABILITY_UNSPECIFIED {
			t.Errorf("capability 0 means nothing")
		}
		if count[c] == 2 {
			t.Errorf("capability %s is told twice", c)
		}
	}
	if s.can(populatorv1.Capability_CAPABILITY_COMPUTE_WORKER) == s.can(populatorv1.Capability_CAPABILITY_FILL) {
		t.Errorf("capabilities are %v, want exactly one of COMPUTE_WORKER and FILL", s.info.GetCapabilities())
	}
}

func infoServes(t T, s *session) {
	var o struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(s.Source, &o); err != nil {
		t.Fatalf("the target's source is no JSON: %v", err)
	}
	group, _, ok := strings.Cut(o.APIVersion, "/")
	if !ok {
		t.Fatalf("the target's source has apiVersion %q, want group/version", o.APIVersion)
	}
	for _, k := range s.info.GetSourceKinds() {
		if k.GetGroup() == group && k.GetKind() == o.Kind {
			return
		}
	}
	t.Errorf("the source is a %s of group %q, and GetInfo tells %v", o.Kind, group, s.info.GetSourceKinds())
}

func infoQuick(t T, s *session) {
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		got, err := s.client.GetInfo(ctx, &populatorv1.GetInfoRequest{})
		cancel()
		if err != nil {
			t.Fatalf("GetInfo: %v", err)
		}
		if !proto.Equal(got, s.info) {
			t.Fatalf("GetInfo says %v, and said %v before", got, s.info)
		}
	}
}

func infoAfterRestart(t T, s *session) {
	s.restart(t)
	s.alive(t)
}
