package populator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-dev/sluice/api/worker"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// fills makes calls that are repeated, late or interrupted into calls that a
// Filler can bear. For each id one call is served at a time; the journal decides:
//
//	entry       StartFill                        GetFill              CleanupFill
//	none        Status; unknown: intend, Start   Status, or unknown   clean
//	Intended    Status; unknown: Start again     Status, or unknown   clean
//	Started     Status; unknown: Failed (lost)   the same             clean
//	Succeeded   the outcome                      the outcome          clean
//	Failed      the outcome                      the outcome          clean
//	Cleaning    refused                          unknown              clean
//	Cleaned     refused                          unknown              done
//
// A filler whose work dies with the process (see [Background]) cannot tell a
// fill that was never started from one that was lost: for it, Intended is Started.
type fills[S any] struct {
	filler  Filler[S]
	cleaner Cleaner
	journal Journal
	log     *slog.Logger
	locks   idLocks
	peak    peaks
	// mortal says that a fill does not outlive the process.
	mortal bool
}

func newFills[S any](p Plugin[S], log *slog.Logger) *fills[S] {
	f := &fills[S]{filler: p.Filler, cleaner: p.Cleaner, journal: p.Journal, log: log}
	if b, ok := p.Filler.(*background[S]); ok {
		f.mortal = true
		b.attach(log, f.ended)
	}
	return f
}

// stop ends work that does not outlive the process.
func (f *fills[S]) stop(ctx context.Context) {
	if b, ok := f.filler.(*background[S]); ok {
		b.stop(ctx)
	}
}

// idPattern is what an id may look like. Ids become names of files and of
// objects in storages.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func checkID(id string) error {
	if idPattern.MatchString(id) {
		return nil
	}
	return callErrorf(codes.InvalidArgument, "id is not a UUID")
}

// start serves StartFill.
func (f *fills[S]) start(ctx context.Context, fill Fill[S]) (*populatorv1.Fill, error) {
	unlock, err := f.locks.lock(ctx, fill.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ref := FillRef{ID: fill.ID, Volume: fill.Volume}
	e, known, err := f.journal.Get(ctx, fill.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case known && e.over():
		return nil, callErrorf(codes.FailedPrecondition, "fill %q was cleaned up", fill.ID)
	case known && e.ended():
		return e.wire(ref), nil
	}
	s, err := f.filler.Status(ctx, ref)
	if !errors.Is(err, ErrUnknownFill) {
		// Begun earlier, or by another replica.
		if err == nil && !known {
			err = f.put(ctx, ref, Entry{Stage: StageStarted})
		}
		fill, err := f.answer(ctx, ref, s, err)
		if known {
			err = mayHaveBegun(err)
		}
		return fill, err
	}
	if known && f.begun(e) {
		return f.lost(ctx, ref)
	}
	return f.begin(ctx, fill, ref)
}

// begin has the filler start what nobody knows yet.
func (f *fills[S]) begin(ctx context.Context, fill Fill[S], ref FillRef) (*populatorv1.Fill, error) {
	if b, ok := f.filler.(*background[S]); ok {
		release, err := b.reserve(fill.ID)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	if err := f.put(ctx, ref, Entry{Stage: StageIntended}); err != nil {
		return nil, err
	}
	if err := f.filler.Start(ctx, fill); err != nil {
		return f.notStarted(ctx, ref, err)
	}
	if err := f.put(ctx, ref, Entry{Stage: StageStarted}); err != nil {
		return nil, mayHaveBegun(err)
	}
	s, err := f.filler.Status(ctx, ref)
	if err != nil && !isFailure(err) {
		// It was begun, and that is the answer; how far it is will be asked.
		s, err = Status{}, nil
	}
	got, err := f.answer(ctx, ref, s, err)
	return got, mayHaveBegun(err)
}

// notStarted answers for a Start that ended with an error. Whether it began all
// the same, the storage knows.
func (f *fills[S]) notStarted(ctx context.Context, ref FillRef, started error) (*populatorv1.Fill, error) {
	if isFailure(started) || isMarked(started) {
		return f.answer(ctx, ref, Status{}, started)
	}
	s, err := f.filler.Status(ctx, ref)
	if errors.Is(err, ErrUnknownFill) {
		return nil, started
	}
	if err != nil && !isFailure(err) {
		return nil, mayHaveBegun(errors.Join(started, err))
	}
	fill, err := f.answer(ctx, ref, s, err)
	return fill, mayHaveBegun(err)
}

// mayHaveBegun gives an error of StartFill a code that promises nothing: after
// UNAVAILABLE the caller takes it that nothing was begun.
func mayHaveBegun(err error) error {
	if err == nil || isMarked(err) {
		return err
	}
	return &call{code: codes.Internal, err: err}
}

// begun says whether the fill of an entry may have written and should be known.
func (f *fills[S]) begun(e Entry) bool {
	return e.Stage == StageStarted || f.mortal && e.Stage == StageIntended
}

// get serves GetFill.
func (f *fills[S]) get(ctx context.Context, ref FillRef) (*populatorv1.Fill, error) {
	unlock, err := f.locks.lock(ctx, ref.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	e, known, err := f.journal.Get(ctx, ref.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case known && e.over():
		return nil, errUnknown(ref)
	case known && e.ended():
		return e.wire(ref), nil
	case known:
		// The answer tells the volume that is filled, whatever was asked.
		ref.Volume.Handle = e.Handle
	}
	s, err := f.filler.Status(ctx, ref)
	if errors.Is(err, ErrUnknownFill) {
		if known && f.begun(e) {
			return f.lost(ctx, ref)
		}
		return nil, errUnknown(ref)
	}
	return f.answer(ctx, ref, s, err)
}

// cleanup serves CleanupFill. The journal has the fill as one that must not be
// started any more before anything is done about it.
func (f *fills[S]) cleanup(ctx context.Context, ref FillRef, handedOver bool) (*populatorv1.CleanupFillResponse, error) {
	unlock, err := f.locks.lock(ctx, ref.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	e, known, err := f.journal.Get(ctx, ref.ID)
	if err != nil {
		return nil, err
	}
	if known && e.Stage == StageCleaned {
		return &populatorv1.CleanupFillResponse{Done: true}, nil
	}
	if !known || e.Stage != StageCleaning {
		if err := f.put(ctx, ref, Entry{Stage: StageCleaning}); err != nil {
			return nil, err
		}
	}
	err = f.clean(ctx, ref, handedOver)
	var later *notYet
	if errors.As(err, &later) {
		return &populatorv1.CleanupFillResponse{
			RetryAfter: retryAfter(later.after), Message: worker.Clean(later.message),
		}, nil
	}
	if err != nil && !errors.Is(err, ErrUnknownFill) {
		return nil, err
	}
	if err := f.put(ctx, ref, Entry{Stage: StageCleaned}); err != nil {
		return nil, err
	}
	f.peak.forget(ref.ID)
	return &populatorv1.CleanupFillResponse{Done: true}, nil
}

func (f *fills[S]) clean(ctx context.Context, ref FillRef, handedOver bool) error {
	if b, ok := f.filler.(*background[S]); ok {
		if err := b.cancel(ctx, ref.ID); err != nil {
			return err
		}
	}
	if f.cleaner != nil {
		return f.cleaner.Cleanup(ctx, ref, handedOver)
	}
	if f.mortal {
		return nil
	}
	s, err := f.filler.Status(ctx, ref)
	if err == nil && s.State == Running {
		return NotYet(s.RetryAfter, "the storage is still filling")
	}
	if isFailure(err) {
		return nil
	}
	return err
}

// answer turns what a filler said into an answer, and notes how a fill ended.
func (f *fills[S]) answer(ctx context.Context, ref FillRef, s Status, err error) (*populatorv1.Fill, error) {
	switch {
	case isFailure(err):
		s = Status{State: Failed, Err: err}
	case err != nil:
		return nil, err
	}
	if s.State == Running {
		done := f.peak.raise(ref.ID, max(s.Progress.BytesDone, 0))
		fill := &populatorv1.Fill{
			Id: ref.ID, CsiHandle: ref.Volume.Handle, State: populatorv1.Fill_STATE_RUNNING,
			BytesDone: done, BytesTotal: max(s.Progress.BytesTotal, 0),
			Message: worker.Clean(s.Message), RetryAfter: retryAfter(s.RetryAfter),
		}
		return fill, nil
	}
	s.Progress.BytesDone = f.peak.raise(ref.ID, max(s.Progress.BytesDone, 0))
	e := outcome(s)
	if err := f.put(ctx, ref, e); err != nil {
		return nil, err
	}
	e.Handle = ref.Volume.Handle
	return e.wire(ref), nil
}

// outcome is the entry of a fill that ended.
func outcome(s Status) Entry {
	e := Entry{Stage: StageSucceeded, Digest: s.Digest, Progress: s.Progress}
	if s.State == Succeeded {
		return e
	}
	if s.Err == nil {
		s.Err = errors.New("the plugin does not say why")
	}
	e.Stage, e.Digest = StageFailed, ""
	e.Reason, e.Message, e.Permanent = ReasonOf(s.Err), worker.Clean(s.Err.Error()), IsPermanent(s.Err)
	return e
}

// lost ends a fill that was begun and cannot be found any more.
func (f *fills[S]) lost(ctx context.Context, ref FillRef) (*populatorv1.Fill, error) {
	f.log.WarnContext(ctx, "fill was lost", "fill", ref.ID, "volume", ref.Volume.Name)
	return f.answer(ctx, ref, Status{State: Failed, Err: errLost}, nil)
}

var errLost = errors.New("the plugin lost track of the fill, for example by a restart")

// ended notes the end of work that ran in this process.
func (f *fills[S]) ended(ref FillRef, s Status) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	unlock, err := f.locks.lock(ctx, ref.ID)
	if err != nil {
		f.log.Error("end of a fill not noted", "fill", ref.ID, "error", err)
		return
	}
	defer unlock()
	if e, known, err := f.journal.Get(ctx, ref.ID); err == nil && known && (e.over() || e.ended()) {
		return
	}
	if err := f.put(ctx, ref, outcome(s)); err != nil {
		// GetFill will ask the work itself, as long as the process lives.
		f.log.Error("end of a fill not noted", "fill", ref.ID, "error", err)
	}
}

// endTimeout is how long noting the end of a fill may take.
const endTimeout = 10 * time.Second

func (f *fills[S]) put(ctx context.Context, ref FillRef, e Entry) error {
	e.Time, e.Handle = time.Now().UTC(), ref.Volume.Handle
	if err := f.journal.Put(ctx, ref.ID, e); err != nil {
		return fmt.Errorf("note fill %q: %w", ref.ID, err)
	}
	return nil
}

// over says that a fill has been given up.
func (e Entry) over() bool { return e.Stage == StageCleaning || e.Stage == StageCleaned }

// ended says that the outcome is known.
func (e Entry) ended() bool { return e.Stage == StageSucceeded || e.Stage == StageFailed }

// wire is the outcome as it is sent.
func (e Entry) wire(ref FillRef) *populatorv1.Fill {
	fill := &populatorv1.Fill{
		Id: ref.ID, CsiHandle: e.Handle, BytesDone: e.Progress.BytesDone, BytesTotal: max(e.Progress.BytesTotal, 0),
	}
	if e.Stage == StageSucceeded {
		fill.State, fill.Digest = populatorv1.Fill_STATE_SUCCEEDED, e.Digest
		return fill
	}
	fill.State = populatorv1.Fill_STATE_FAILED
	fill.Failure = &populatorv1.Failure{Reason: string(e.Reason), Message: e.Message, Permanent: e.Permanent}
	return fill
}

func errUnknown(ref FillRef) error {
	return callErrorf(codes.NotFound, "no fill %q", ref.ID)
}

// retryAfter leaves the choice to the caller where none was made.
func retryAfter(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}
