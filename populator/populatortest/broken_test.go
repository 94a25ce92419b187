package populatortest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/populator"
	"github.com/sluice-dev/sluice/populator/populatortest"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// call is a call as it reaches a plugin that is broken on purpose: next is what
// the plugin would do if it were not.
type call struct {
	ctx     context.Context
	method  string
	request proto.Message
	next    func(ctx context.Context) (any, error)
}

func (c call) id() string {
	if r, ok := c.request.(interface{ GetId() string }); ok {
		return r.GetId()
	}
	return ""
}

// fill returns the fill in an answer, or nil.
func (c call) fill() (*populatorv1.Fill, any, error) {
	answer, err := c.next(c.ctx)
	if f, ok := answer.(interface{ GetFill() *populatorv1.Fill }); ok {
		return f.GetFill(), answer, err
	}
	return nil, answer, err
}

// broken is a way to break a rule.
type broken struct {
	breaks string // the case that must find it
	how    string
	filler bool // a plugin that fills, rather than one that computes workers
	// spoil makes the plugin wrong; once for each plugin.
	spoil func(s *shelf) func(c call) (any, error)
	// change makes the plugin wrong where a call cannot.
	change func(s *shelf, p *populator.Plugin[note])
}

func (b broken) run(t *testing.T) []populatortest.Result {
	t.Helper()
	s, dir := newShelf(t), t.TempDir()
	spoil := func(c call) (any, error) { return c.next(c.ctx) }
	if b.spoil != nil {
		spoil = b.spoil(s)
	}
	server := populatortest.Serve(t, func() (populator.Plugin[note], error) {
		p := s.plugin(b.filler)
		var err error
		if b.filler {
			p.Journal, err = populator.FileJournal(dir)
		}
		if b.change != nil {
			b.change(s, &p)
		}
		return p, err
	}, populator.WithServerOptions(grpc.UnaryInterceptor(
		func(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			request, ok := in.(proto.Message)
			if !ok {
				return nil, errors.New("request is no message")
			}
			return spoil(call{
				ctx: ctx, method: filepath.Base(info.FullMethod), request: request,
				next: func(ctx context.Context) (any, error) { return next(ctx, in) },
			})
		})))
	target := s.target(server)
	target.FillTimeout = 4 * time.Second
	results, err := populatortest.Verify(t.Context(), target, b.breaks)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 {
		t.Fatalf("%d cases are named %q, want one", len(results), b.breaks)
	}
	return results
}

func (s *shelf) plugin(filler bool) populator.Plugin[note] {
	p := populator.Plugin[note]{Name: "notes.example.com", Kinds: noteKinds, Validator: populator.ValidatorFunc[note](validNote)}
	if filler {
		p.Filler = populator.Background(32, s.refuseInvalid(s.fill))
		return p
	}
	p.Primer = populator.PrimerFunc[note](func(context.Context, populator.Source[note], populator.Claim) (populator.Prime, error) {
		return populator.Prime{Labels: map[string]string{"notes.example.com/team": "a"}}, nil
	})
	p.Worker = populator.WorkerFunc[note](func(ctx context.Context, r populator.Request[note]) (*v1alpha1.WorkerTemplate, error) {
		if err := validNote(ctx, r.Source); err != nil {
			return nil, populator.Permanent(populator.InvalidSource.Errorf("%w", err))
		}
		return &v1alpha1.WorkerTemplate{Image: "busybox"}, nil
	})
	return p
}

// at spoils one method.
func at(method string, spoil func(c call) (any, error)) func(*shelf) func(call) (any, error) {
	return func(*shelf) func(call) (any, error) {
		return func(c call) (any, error) {
			if c.method != method {
				return c.next(c.ctx)
			}
			return spoil(c)
		}
	}
}

// fillAnswer spoils what is answered about fills.
func fillAnswer(spoil func(c call, f *populatorv1.Fill)) func(*shelf) func(call) (any, error) {
	return func(*shelf) func(call) (any, error) {
		return func(c call) (any, error) {
			f, answer, err := c.fill()
			if f != nil {
				spoil(c, f)
			}
			return answer, err
		}
	}
}

// onError replaces the error that a method ends with.
func onError(method string, code codes.Code, answer any, err error) func(*shelf) func(call) (any, error) {
	return at(method, func(c call) (any, error) {
		good, e := c.next(c.ctx)
		if e != nil && (code == codes.OK || status.Code(e) == code) {
			return answer, err
		}
		return good, e
	})
}

func worker(answer string) func(*shelf) func(call) (any, error) {
	return at("ComputeWorker", func(call) (any, error) {
		return &populatorv1.ComputeWorkerResponse{WorkerJson: []byte(answer)}, nil
	})
}

func TestBrokenPluginsAreFound(t *testing.T) {
	all := append(append(brokenCallers(), brokenFillers()...), brokenCleaners()...)
	all = append(all, brokenByRestart()...)
	for _, b := range all {
		t.Run(b.breaks+"/"+b.how, func(t *testing.T) {
			r := b.run(t)[0]
			if r.Skipped != "" {
				t.Fatalf("the case was skipped: %s", r.Skipped)
			}
			if len(r.Failures) == 0 {
				t.Fatalf("the case does not find the plugin that breaks it: %s", r.Case.Rule)
			}
			t.Logf("found: %s", r.Failures[0])
		})
	}
	t.Run("every case finds one", func(t *testing.T) {
		for _, c := range populatortest.Cases() {
			found := c.Name == "Calls/OversizeRequest" // TestNoLimitIsFound
			for _, b := range all {
				found = found || b.breaks == c.Name
			}
			if !found {
				t.Errorf("no plugin breaks %s, so nobody knows whether it finds anything", c.Name)
			}
		}
	})
}

// TestNoLimitIsFound is about a plugin with a server of its own.
func TestNoLimitIsFound(t *testing.T) {
	target := target(serveRaw(t, &unbounded{}, grpc.MaxRecvMsgSize(64<<20)))
	results, err := populatortest.Verify(t.Context(), target, "Calls/OversizeRequest")
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || len(results[0].Failures) == 0 {
		t.Errorf("a plugin that takes requests of any size is not found: %v", results)
	}
}

// unbounded takes whatever comes.
type unbounded struct {
	populatorv1.UnimplementedPopulatorServer
}

func (*unbounded) GetInfo(context.Context, *populatorv1.GetInfoRequest) (*populatorv1.GetInfoResponse, error) {
	return &populatorv1.GetInfoResponse{
		Name: "notes.example.com", SourceKinds: []*populatorv1.Kind{{Group: "notes.example.com", Kind: "Note"}},
		Capabilities: []populatorv1.Capability{populatorv1.Capability_CAPABILITY_COMPUTE_WORKER},
	}, nil
}

func (*unbounded) ComputeWorker(context.Context, *populatorv1.ComputeWorkerRequest) (*populatorv1.ComputeWorkerResponse, error) {
	return &populatorv1.ComputeWorkerResponse{WorkerJson: []byte(`{"image":"busybox"}`)}, nil
}

func serveRaw(t *testing.T, p populatorv1.PopulatorServer, opts ...grpc.ServerOption) populatortest.Target {
	t.Helper()
	var lock sync.Mutex
	server := grpc.NewServer(opts...)
	populatorv1.RegisterPopulatorServer(server, p)
	listener := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil {
			lock.Lock()
			defer lock.Unlock()
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return populatortest.Target{Address: listener.Addr().String()}
}

// brokenCallers break what holds for every plugin, or for one that computes
// workers.
func brokenCallers() []broken {
	var told atomic.Int64
	info := func(spoil func(*populatorv1.GetInfoResponse)) func(*shelf) func(call) (any, error) {
		return at("GetInfo", func(c call) (any, error) {
			answer, err := c.next(c.ctx)
			if i, ok := answer.(*populatorv1.GetInfoResponse); ok {
				spoil(i)
			}
			return answer, err
		})
	}
	return []broken{
		{breaks: "Info/Complete", how: "no name", spoil: info(func(i *populatorv1.GetInfoResponse) { i.Name = "" })},
		{breaks: "Info/Complete", how: "no kind", spoil: info(func(i *populatorv1.GetInfoResponse) { i.SourceKinds = nil })},
		{breaks: "Info/OneWayToFill", how: "both ways", spoil: info(func(i *populatorv1.GetInfoResponse) {
			i.Capabilities = append(i.Capabilities, populatorv1.Capability_CAPABILITY_FILL)
		})},
		{breaks: "Info/OneWayToFill", how: "no way", spoil: info(func(i *populatorv1.GetInfoResponse) { i.Capabilities = nil })},
		{breaks: "Info/ServesTheSource", how: "another kind", spoil: info(func(i *populatorv1.GetInfoResponse) { i.SourceKinds[0].Kind = "Letter" })},
		{breaks: "Info/Quick", how: "another answer each time", spoil: info(func(i *populatorv1.GetInfoResponse) {
			i.Version = fmt.Sprint(told.Add(1))
		})},
		{breaks: "Info/AfterRestart", how: "another name", change: func(_ *shelf, p *populator.Plugin[note]) {
			p.Name = fmt.Sprintf("notes-%d.example.com", told.Add(1))
		}},
		{breaks: "Calls/AnsweredInTime", how: "waits for the work", filler: true, spoil: at("StartFill", func(c call) (any, error) {
			<-c.ctx.Done()
			return nil, c.ctx.Err()
		})},
		{breaks: "Calls/Unimplemented", how: "an empty answer", spoil: onError("CleanupFill", codes.Unimplemented, &populatorv1.CleanupFillResponse{}, nil)},
		{breaks: "Calls/UnknownFields", how: "refuses them", spoil: func(*shelf) func(call) (any, error) {
			return func(c call) (any, error) {
				if len(c.request.ProtoReflect().GetUnknown()) > 0 {
					return nil, status.Error(codes.InvalidArgument, "unknown field")
				}
				return c.next(c.ctx)
			}
		}},
		{breaks: "Calls/MalformedSource", how: "fills from it", spoil: worker(`{"image":"busybox"}`)},
		{breaks: "Calls/MalformedSource", how: "takes it for an outage", spoil: onError("ComputeWorker", codes.InvalidArgument, nil, errors.New("unexpected token"))},
		{breaks: "Worker/BeforeTheVolume", how: "wants one", spoil: at("ComputeWorker", func(c call) (any, error) {
			if r, ok := c.request.(*populatorv1.ComputeWorkerRequest); ok && r.GetVolume() == nil {
				return nil, status.Error(codes.InvalidArgument, "no volume")
			}
			return c.next(c.ctx)
		})},
		{breaks: "Calls/LargeSource", how: "gives it back", spoil: at("ComputeWorker", func(c call) (any, error) {
			r, ok := c.request.(*populatorv1.ComputeWorkerRequest)
			if !ok {
				return nil, errors.New("not a ComputeWorker")
			}
			return &populatorv1.ComputeWorkerResponse{WorkerJson: r.GetSource().GetJson()}, nil
		})},
		{breaks: "Calls/Abandoned", how: "is never the same again", spoil: func(*shelf) func(call) (any, error) {
			var hurt atomic.Bool
			return func(c call) (any, error) {
				if deadline, ok := c.ctx.Deadline(); ok && time.Until(deadline) < time.Second {
					hurt.Store(true)
				}
				if hurt.Load() {
					return nil, status.Error(codes.Internal, "deadlock")
				}
				return c.next(c.ctx)
			}
		}},
		{breaks: "Calls/Concurrent", how: "one at a time", spoil: func(*shelf) func(call) (any, error) {
			var busy sync.Mutex
			return func(c call) (any, error) {
				if !busy.TryLock() {
					return nil, status.Error(codes.Aborted, "another call is served")
				}
				defer busy.Unlock()
				defer func() { <-time.After(time.Millisecond) }()
				return c.next(c.ctx)
			}
		}},
		{breaks: "Validate/Valid", how: "refuses all", spoil: at("ValidateSource", func(call) (any, error) {
			return &populatorv1.ValidateSourceResponse{Invalid: "no"}, nil
		})},
		{breaks: "Validate/Invalid", how: "takes all", spoil: at("ValidateSource", func(call) (any, error) {
			return &populatorv1.ValidateSourceResponse{}, nil
		})},
		{breaks: "Validate/Invalid", how: "colours its words", spoil: at("ValidateSource", func(call) (any, error) {
			return &populatorv1.ValidateSourceResponse{Invalid: "\x1b[31mno\x1b[0m"}, nil
		})},
		{breaks: "Prime/SameTwice", how: "counts", spoil: at("MutatePrime", func(call) (any, error) {
			return &populatorv1.MutatePrimeResponse{Labels: map[string]string{"n": fmt.Sprint(told.Add(1))}}, nil
		})},
		{breaks: "Prime/Bounds", how: "a key of ours", spoil: at("MutatePrime", func(call) (any, error) {
			return &populatorv1.MutatePrimeResponse{Annotations: map[string]string{"sub.sluice.dev/x": ""}}, nil
		})},
		{breaks: "Prime/Bounds", how: "a value that is none", spoil: at("MutatePrime", func(call) (any, error) {
			return &populatorv1.MutatePrimeResponse{Labels: map[string]string{"a": "two words"}}, nil
		})},
		{breaks: "Worker/Template", how: "no image", spoil: worker(`{"command":["sh"]}`)},
		{breaks: "Worker/Template", how: "a field of a Pod", spoil: worker(`{"image":"busybox","hostNetwork":true}`)},
		{breaks: "Worker/SameTwice", how: "counts", spoil: at("ComputeWorker", func(call) (any, error) {
			return &populatorv1.ComputeWorkerResponse{WorkerJson: fmt.Appendf(nil, `{"image":"busybox:%d"}`, told.Add(1))}, nil
		})},
		{breaks: "Worker/VolumeMode", how: "nothing for a block volume", spoil: at("ComputeWorker", func(call) (any, error) {
			return &populatorv1.ComputeWorkerResponse{}, nil
		})},
		{breaks: "Worker/InvalidSource", how: "a worker all the same", spoil: worker(`{"image":"busybox"}`)},
	}
}

// brokenFillers break what holds for fills.
func brokenFillers() []broken {
	begins := func(s *shelf) func(call) (any, error) {
		return func(c call) (any, error) {
			if c.method == "StartFill" {
				s.count(c.id())
			}
			return c.next(c.ctx)
		}
	}
	var last atomic.Value
	return []broken{
		{breaks: "Fill/Succeeds", how: "writes nothing", filler: true, change: func(_ *shelf, p *populator.Plugin[note]) {
			p.Filler = populator.Background(1, func(context.Context, populator.Fill[note], func(populator.Progress)) (string, error) {
				return "", nil
			})
		}},
		{breaks: "Fill/Succeeds", how: "answers about another volume", filler: true, spoil: fillAnswer(func(_ call, f *populatorv1.Fill) { f.CsiHandle = "another" })},
		{breaks: "Fill/OutcomeStays", how: "runs again", filler: true, spoil: func(*shelf) func(call) (any, error) {
			var ended sync.Map
			return fillAnswer(func(c call, f *populatorv1.Fill) {
				if _, before := ended.LoadOrStore(c.id(), f.GetState() != populatorv1.Fill_STATE_RUNNING); before && f.GetState() == populatorv1.Fill_STATE_SUCCEEDED {
					if n, _ := ended.Swap(c.id()+"/n", true); n != nil {
						f.State = populatorv1.Fill_STATE_RUNNING
					}
				}
			})(nil)
		}},
		{breaks: "Fill/StartTwice", how: "begins each time", filler: true, spoil: begins},
		{breaks: "Fill/StartAtOnce", how: "begins each time", filler: true, spoil: begins},
		{breaks: "Fill/LostAnswer", how: "begins each time", filler: true, spoil: begins},
		{breaks: "Fill/Unknown", how: "an error of its own", filler: true, spoil: onError("GetFill", codes.NotFound, nil, errors.New("no row"))},
		{breaks: "Fill/HostileID", how: "takes it", filler: true, spoil: onError("StartFill", codes.InvalidArgument, &populatorv1.StartFillResponse{}, nil)},
		{breaks: "Fill/NoVolume", how: "fills something", filler: true, spoil: onError("StartFill", codes.InvalidArgument, &populatorv1.StartFillResponse{}, nil)},
		{breaks: "Fill/FailureSaid", how: "does not say why", filler: true, spoil: fillAnswer(func(_ call, f *populatorv1.Fill) { f.Failure = nil })},
		{breaks: "Fill/FailureSaid", how: "words of its own", filler: true, spoil: fillAnswer(func(_ call, f *populatorv1.Fill) {
			if f.GetFailure() != nil {
				f.Failure.Reason = "E1042"
			}
		})},
		{breaks: "Fill/InvalidSource", how: "fills all the same", filler: true, change: func(s *shelf, p *populator.Plugin[note]) {
			p.Filler = populator.Background(8, s.fill)
		}},
		{breaks: "Fill/Progress", how: "goes back", filler: true, spoil: fillAnswer(func(_ call, f *populatorv1.Fill) {
			f.BytesDone = f.GetBytesTotal() - f.GetBytesDone()
		})},
		{breaks: "Fill/SideBySide", how: "mixes them up", filler: true, spoil: fillAnswer(func(c call, f *populatorv1.Fill) {
			if before, ok := last.Swap(c.id()).(string); ok {
				f.Id = before
			}
		})},
	}
}

// brokenCleaners break what holds for cleaning up.
func brokenCleaners() []broken {
	atOnce := at("CleanupFill", func(call) (any, error) { return &populatorv1.CleanupFillResponse{Done: true}, nil })
	late := onError("StartFill", codes.FailedPrecondition, &populatorv1.StartFillResponse{Fill: &populatorv1.Fill{}}, nil)
	return []broken{
		{breaks: "Cleanup/Unknown", how: "an error", filler: true, spoil: at("CleanupFill", func(call) (any, error) {
			return nil, errors.New("no row")
		})},
		{breaks: "Cleanup/Twice", how: "an error the second time", filler: true, spoil: func(*shelf) func(call) (any, error) {
			var done sync.Map
			return at("CleanupFill", func(c call) (any, error) {
				if _, before := done.Load(c.id()); before {
					return nil, errors.New("no row")
				}
				answer, err := c.next(c.ctx)
				if a, ok := answer.(*populatorv1.CleanupFillResponse); ok && a.GetDone() {
					done.Store(c.id(), true)
				}
				return answer, err
			})(nil)
		}},
		{breaks: "Cleanup/Forgets", how: "still knows", filler: true, spoil: onError("GetFill", codes.NotFound, &populatorv1.GetFillResponse{Fill: &populatorv1.Fill{}}, nil)},
		{breaks: "Cleanup/KeepsTheVolume", how: "wipes it", filler: true, spoil: func(s *shelf) func(call) (any, error) {
			return at("CleanupFill", func(c call) (any, error) {
				r, ok := c.request.(*populatorv1.CleanupFillRequest)
				if !ok {
					return nil, errors.New("not a CleanupFill")
				}
				if err := os.RemoveAll(filepath.Join(s.dir, r.GetVolume().GetCsiHandle())); err != nil {
					return nil, err
				}
				return c.next(c.ctx)
			})(s)
		}},
		{breaks: "Cleanup/WhileRunning", how: "waits for its end", filler: true, spoil: at("CleanupFill", func(call) (any, error) {
			return &populatorv1.CleanupFillResponse{Message: "it still runs"}, nil
		})},
		{breaks: "Cleanup/NothingWrites", how: "done at once", filler: true, spoil: atOnce},
		{breaks: "Cleanup/BesideStart", how: "done at once", filler: true, spoil: atOnce},
		{breaks: "Cleanup/BeforeStart", how: "starts late", filler: true, spoil: late},
		{breaks: "Cleanup/NoStartAfter", how: "starts late", filler: true, spoil: late},
	}
}

// brokenByRestart forget what they should know after a crash.
func brokenByRestart() []broken {
	forget := func(_ *shelf, p *populator.Plugin[note]) { p.Journal = populator.MemoryJournal() }
	return []broken{
		{breaks: "Restart/WhileRunning", how: "forgets", filler: true, change: forget},
		{breaks: "Restart/NoSecondWriter", how: "forgets", filler: true, change: forget},
		{breaks: "Restart/AfterEnd", how: "forgets", filler: true, change: forget},
		{breaks: "Restart/AfterCleanup", how: "forgets", filler: true, change: forget},
		{breaks: "Restart/CleansUp", how: "does not find it", filler: true, change: forget, spoil: func(*shelf) func(call) (any, error) {
			var known sync.Map
			return func(c call) (any, error) {
				f, answer, err := c.fill()
				if c.method == "GetInfo" {
					known.Clear()
				}
				if f != nil {
					known.Store(c.id(), true)
				}
				if _, ok := known.Load(c.id()); !ok && c.method == "CleanupFill" {
					return nil, status.Error(codes.Internal, "no row")
				}
				return answer, err
			}
		}},
	}
}
