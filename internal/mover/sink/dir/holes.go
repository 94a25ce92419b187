package dir

import (
	"bytes"
	"iter"
)

// holeSize is the least run of zeros that becomes a hole: smaller ones would
// make many small writes of one large one.
const holeSize = 32 << 10

var zeros [holeSize]byte

// dataRuns yields the ranges of buf that hold anything but zeros, in steps of
// holeSize.
func dataRuns(buf []byte) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		from := -1
		for at := 0; at < len(buf); at += holeSize {
			end := min(at+holeSize, len(buf))
			hole := bytes.Equal(buf[at:end], zeros[:end-at])
			switch {
			case hole && from >= 0:
				if !yield(from, at) {
					return
				}
				from = -1
			case !hole && from < 0:
				from = at
			}
		}
		if from >= 0 {
			yield(from, len(buf))
		}
	}
}
