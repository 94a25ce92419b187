package populatortest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

var callCases = []Case{
	{Name: "Calls/AnsweredInTime", Rule: "Every method is answered within five seconds; work goes on behind the answer.", run: callsInTime},
	{Name: "Calls/Unimplemented", Rule: "A method of a capability that the plugin does not have, and one that nobody knows, is UNIMPLEMENTED.", run: callsUnimplemented},
	{Name: "Calls/UnknownFields", Rule: "Fields that the plugin does not know are ignored.", run: callsUnknownFields},
	{Name: "Calls/MalformedSource", Rule: "A source that is no JSON object is refused, not filled from and not taken for an outage.", run: callsMalformedSource},
	{Name: "Calls/LargeSource", Rule: "A source of 1.9 MiB is taken, and the answer fits into 1 MiB.", run: callsLargeSource},
	{Name: "Calls/OversizeRequest", Rule: "A request above 4 MiB is refused, and the plugin lives on.", run: callsOversize},
	{Name: "Calls/Abandoned", Rule: "Callers that go away in the middle of a call leave the plugin as it was.", run: callsAbandoned},
	{Name: "Calls/Concurrent", Rule: "Calls are served side by side.", run: callsConcurrent},
}

func callsInTime(t T, s *session) {
	for _, r := range s.served() {
		object := s.Source
		if len(s.Slow) > 0 {
			object = s.Slow
		}
		request := r.request(t, s, object)
		begin := time.Now()
		if _, err := s.invoke(t.Context(), r, request); status.Code(err) == codes.DeadlineExceeded {
			t.Errorf("%s gave no answer within %s", r.name, time.Since(begin).Round(time.Second))
		}
		s.leave(t, request)
	}
}

func callsUnimplemented(t T, s *session) {
	for _, r := range rpcs {
		if r.needs == 0 || s.can(r.needs) {
			continue
		}
		if _, err := s.invoke(t.Context(), r, r.request(t, s, s.Source)); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s, which the plugin cannot do, ends with %s, want UNIMPLEMENTED", r.name, status.Code(err))
		}
	}
	future := rpc{name: "ComeBackNextYear", answer: func() proto.Message { return &populatorv1.GetInfoResponse{} }}
	if _, err := s.invoke(t.Context(), future, &populatorv1.GetInfoRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that does not exist ends with %s, want UNIMPLEMENTED", status.Code(err))
	}
}

// unknown is a field that no version has yet.
var unknown = protowire.AppendString(protowire.AppendTag(nil, 15000, protowire.BytesType), "from the future")

func callsUnknownFields(t T, s *session) {
	for _, r := range s.served() {
		plain := r.request(t, s, s.Source)
		_, err := s.invoke(t.Context(), r, plain)
		s.leave(t, plain)
		want := status.Code(err)

		future := r.request(t, s, s.Source)
		addUnknown(future.ProtoReflect())
		_, err = s.invoke(t.Context(), r, future)
		s.leave(t, future)
		if got := status.Code(err); got != want {
			t.Errorf("%s with unknown fields ends with %s (%v), and with %s without them", r.name, got, err, want)
		}
	}
}

// addUnknown adds an unknown field to a message and to those in it.
func addUnknown(m protoreflect.Message) {
	m.SetUnknown(append(m.GetUnknown(), unknown...))
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Message() != nil && !f.IsMap() && !f.IsList() {
			addUnknown(v.Message())
		}
		return true
	})
}

func callsMalformedSource(t T, s *session) {
	for name, object := range map[string]string{
		"nothing": "", "no JSON": "%PDF-1.7", "half of a source": string(s.Source[:len(s.Source)/2]),
		"null": "null", "a list": "[]", "a string": `"source"`, "a number": "42",
	} {
		for _, r := range s.served() {
			request := r.request(t, s, s.Source)
			sourced, ok := request.(interface{ GetSource() *populatorv1.Source })
			if !ok {
				continue
			}
			sourced.GetSource().Json = []byte(object)
			answer, err := s.invoke(t.Context(), r, request)
			s.leave(t, request)
			if !refusal(answer, err) {
				t.Errorf("%s of a source that is %s: got %v, %v; want INVALID_ARGUMENT or a failure in the answer", r.name, name, answer, err)
			}
		}
	}
	s.alive(t)
}

func callsLargeSource(t T, s *session) {
	var object map[string]any
	if err := json.Unmarshal(s.Source, &object); err != nil {
		t.Fatalf("the target's source is no JSON: %v", err)
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		t.Fatalf("the target's source has no metadata")
	}
	meta["annotations"] = map[string]any{"conformance.example.com/padding": strings.Repeat("x", 1900<<10)}
	large, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("encode source: %v", err)
	}
	for _, r := range s.served() {
		request := r.request(t, s, large)
		answer, err := s.invoke(t.Context(), r, request)
		s.leave(t, request)
		if r.name == "GetFill" {
			continue
		}
		if err != nil || refusal(answer, err) {
			t.Errorf("%s of a source with a large annotation: %v; want it taken as any", r.name, err)
		}
	}
}

func callsOversize(t T, s *session) {
	for _, r := range s.served() {
		request := r.request(t, s, s.Source)
		sourced, ok := request.(interface{ GetSource() *populatorv1.Source })
		if !ok {
			continue
		}
		sourced.GetSource().Json = []byte(`{"metadata":{"name":"` + strings.Repeat("x", 5<<20) + `"}}`)
		if _, err := s.invoke(t.Context(), r, request); err == nil || status.Code(err) == codes.DeadlineExceeded {
			t.Errorf("%s with a request of 5 MiB: %v; want it refused", r.name, err)
		}
		s.leave(t, request)
	}
	s.alive(t)
}

func callsAbandoned(t T, s *session) {
	for _, r := range s.served() {
		for i := range 10 {
			request := r.request(t, s, s.Source)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
			_, err := s.invoke(ctx, r, request)
			cancel()
			if err != nil && status.Code(err) != codes.DeadlineExceeded && r.name != "GetFill" {
				t.Errorf("%s whose caller went away: %v", r.name, err)
			}
			s.leave(t, request)
		}
	}
	s.alive(t)
	for _, r := range s.served() {
		request := r.request(t, s, s.Source)
		if _, err := s.invoke(t.Context(), r, request); err != nil && r.name != "GetFill" {
			t.Errorf("%s after callers went away: %v", r.name, err)
		}
		s.leave(t, request)
	}
}

func callsConcurrent(t T, s *session) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		for _, r := range s.served() {
			request := r.request(t, s, s.Source)
			all.Go(func() {
				_, err := s.invoke(t.Context(), r, request)
				if err == nil || r.name == "GetFill" || status.Code(err) == codes.ResourceExhausted {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				t.Errorf("%s beside other calls: %v", r.name, err)
			})
			defer s.leave(t, request)
		}
	}
	all.Wait()
}

// alive checks that the plugin answers as before.
func (s *session) alive(t T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	got, err := s.client.GetInfo(ctx, &populatorv1.GetInfoRequest{})
	if err != nil {
		t.Fatalf("the plugin does not answer any more: %v", err)
	}
	if !proto.Equal(got, s.info) {
		t.Errorf("GetInfo says %v, and said %v before", got, s.info)
	}
}
