package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxResult is how many bytes a Result may take as JSON. Kubernetes cuts
// termination messages at 4096 bytes for the whole Pod.
const MaxResult = 3 << 10

// maxMessage bounds a message in runes; more is of no use to a reader.
const maxMessage = 1024

// maxEnd bounds the end of a log in runes, so that it is not cut off in an
// event behind what is said before it.
const maxEnd = 512

// Result is what a worker leaves as its termination message. All of it is
// optional, and to its reader all of it is untrusted text.
type Result struct {
	// Reason of a failure: one of the Reason constants.
	Reason string `json:"reason,omitempty"`
	// Message is one sentence for the user.
	Message string `json:"message,omitempty"`
	// Permanent says that trying again cannot help.
	Permanent bool `json:"permanent,omitempty"`
	// Bytes and Files that were written.
	Bytes int64 `json:"bytes,omitempty"`
	Files int64 `json:"files,omitempty"`
	// Digest of the data, as algorithm:hex.
	Digest string `json:"digest,omitempty"`
}

// Encode returns the result as one line of at most MaxResult bytes of JSON,
// the message shortened if need be.
func (r Result) Encode() ([]byte, error) {
	r.Message = Clean(r.Message)
	for {
		out, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode result: %w", err)
		}
		if len(out) <= MaxResult || r.Message == "" {
			return out, nil
		}
		// Escapes make some runes up to six bytes long, so the length is found
		// by trying. Halving ends after eleven rounds.
		runes := []rune(r.Message)
		r.Message = string(runes[:len(runes)/2])
	}
}

var digestPattern = regexp.MustCompile(`^[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,256}$`)

// Digest says that a text is a digest as a Result may carry it.
func Digest(text string) bool { return digestPattern.MatchString(text) }

// Parse reads a Result out of a termination message: the whole of it, or its
// last line where a log was taken for the message. It reports false if there
// is none. What it returns is bounded and printable: unknown fields are
// ignored, unknown reasons and malformed digests dropped, control characters
// stripped, numbers not negative.
func Parse(message []byte) (Result, bool) {
	message = bytes.TrimSpace(message)
	if r, ok := parse(message); ok {
		return r, true
	}
	if i := bytes.LastIndexByte(message, '\n'); i >= 0 {
		return parse(message[i+1:])
	}
	return Result{}, false
}

func parse(message []byte) (Result, bool) {
	if len(message) == 0 || len(message) > MaxResult || message[0] != '{' {
		return Result{}, false
	}
	var r Result
	if err := json.Unmarshal(message, &r); err != nil {
		return Result{}, false
	}
	if r.Reason != "" && !reasons[r.Reason] {
		r.Reason = ReasonWorkerFailed
	}
	if !digestPattern.MatchString(r.Digest) {
		r.Digest = ""
	}
	r.Message = Clean(r.Message)
	r.Bytes, r.Files = max(r.Bytes, 0), max(r.Files, 0)
	return r, true
}

// Clean makes untrusted text fit to be shown in one line: control and other
// unprintable characters become spaces, runs of spaces become one, and more
// than 1024 runes are cut.
func Clean(text string) string {
	text = plain(text)
	if runes := []rune(text); len(runes) > maxMessage {
		text = string(runes[:maxMessage-1]) + "…"
	}
	return text
}

// CleanEnd is Clean for the end of a log, where the last words say most: what
// is more than 512 runes before the end is cut.
func CleanEnd(text string) string {
	text = plain(text)
	if runes := []rune(text); len(runes) > maxEnd {
		text = "…" + string(runes[len(runes)-maxEnd+1:])
	}
	return text
}

// plain makes one line of printable characters of any bytes.
func plain(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
