package populatortest

import (
	"bytes"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

var workerCases = []Case{
	{Name: "Worker/Template", Rule: "ComputeWorker answers with a WorkerTemplate that has an image and no field that is unknown.", run: workerTemplate},
	{Name: "Worker/SameTwice", Rule: "ComputeWorker has no effect: the same request has the same answer.", run: workerSame},
	{Name: "Worker/BeforeTheVolume", Rule: "A worker is computed also where there is no volume yet, so that a node can be found for both.", run: workerEarly},
	{Name: "Worker/VolumeMode", Rule: "A block volume has a worker, too, or a failure that says why not.", run: workerBlock},
	{Name: "Worker/InvalidSource", Rule: "An invalid source has no worker, but INVALID_ARGUMENT or a failure that says why.", run: workerInvalid},
}

func (s *session) worker(t T, request proto.Message) (*populatorv1.ComputeWorkerResponse, error) {
	t.Helper()
	answer, err := s.invoke(t.Context(), s.method("ComputeWorker"), request)
	if err != nil {
		return nil, err
	}
	a, ok := answer.(*populatorv1.ComputeWorkerResponse)
	if !ok {
		t.Fatalf("ComputeWorker answers with a %T", answer)
	}
	return a, nil
}

func workerTemplate(t T, s *session) {
	answer, err := s.worker(t, s.method("ComputeWorker").request(t, s, s.Source))
	if err != nil {
		t.Fatalf("ComputeWorker: %v", err)
	}
	if answer.GetFailure() != nil {
		t.Fatalf("ComputeWorker of a good source fails: %v", answer.GetFailure())
	}
	decoder := json.NewDecoder(bytes.NewReader(answer.GetWorkerJson()))
	decoder.DisallowUnknownFields()
	var template v1alpha1.WorkerTemplate
	if err := decoder.Decode(&template); err != nil {
		t.Fatalf("worker_json is no WorkerTemplate: %v", err)
	}
	if template.Image == "" {
		t.Errorf("the worker has no image")
	}
}

func workerSame(t T, s *session) {
	request := s.method("ComputeWorker").request(t, s, s.Source)
	first, err := s.worker(t, request)
	if err != nil {
		t.Fatalf("ComputeWorker: %v", err)
	}
	second, err := s.worker(t, request)
	if err != nil {
		t.Fatalf("ComputeWorker, again: %v", err)
	}
	if !bytes.Equal(first.GetWorkerJson(), second.GetWorkerJson()) {
		t.Errorf("ComputeWorker answers %s to what it answered %s to before", second.GetWorkerJson(), first.GetWorkerJson())
	}
}

func workerEarly(t T, s *session) {
	answer, err := s.worker(t, &populatorv1.ComputeWorkerRequest{Source: source(t, s.Source), Claim: claim()})
	if err != nil || answer.GetFailure() != nil || len(answer.GetWorkerJson()) == 0 {
		t.Errorf("ComputeWorker before there is a volume: got %v, %v; want a worker", answer, err)
	}
}

func workerBlock(t T, s *session) {
	request := &populatorv1.ComputeWorkerRequest{Source: source(t, s.Source), Claim: claim(), Volume: s.volume(t)}
	request.Volume.Block, request.Volume.FsType = true, ""
	answer, err := s.worker(t, request)
	switch {
	case unanswered(err):
		t.Errorf("ComputeWorker for a block volume: %v", err)
	case err == nil && answer.GetFailure() != nil:
		checkFailure(t, answer.GetFailure())
	case err == nil && len(answer.GetWorkerJson()) == 0:
		t.Errorf("ComputeWorker for a block volume answers with neither a worker nor a failure")
	}
}

func workerInvalid(t T, s *session) {
	invalid := optional(t, s.Invalid, "invalid")
	answer, err := s.worker(t, &populatorv1.ComputeWorkerRequest{Source: invalid, Claim: claim(), Volume: s.volume(t)})
	if !refusal(answer, err) {
		t.Fatalf("ComputeWorker of an invalid source: got %v, %v; want INVALID_ARGUMENT or a failure", answer, err)
	}
	if err == nil {
		checkFailure(t, answer.GetFailure())
	}
}

// reasons are those that a plugin may give.
var reasons = []string{
	"", "SourceUnreachable", "SourceForbidden", "SourceMissing", "SourceEmpty", "Truncated", "DigestMismatch",
	"UnsupportedFormat", "VolumeTooSmall", "SecretNotOffered", "AddressNotAllowed", "InvalidSource", "PluginFailed",
}

func checkFailure(t T, f *populatorv1.Failure) {
	t.Helper()
	if !slices.Contains(reasons, f.GetReason()) {
		t.Errorf("a failure has reason %q, which is none of the contract's", f.GetReason())
	}
	if err := said(f.GetMessage()); err != nil {
		t.Errorf("the message of a failure: %v: %.80q", err, f.GetMessage())
	}
}
