package driver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestSizes(t *testing.T) {
	const mib = 1 << 20
	cases := map[string]struct {
		reason         string
		required, most int64
		floor          int64
		empty          bool
		want           int64
		code           codes.Code
	}{
		"Default":         {reason: "A volume has a default size.", empty: true, want: defaultSize},
		"DefaultInLimit":  {reason: "A limit bounds the default.", empty: true, most: 10*mib + 1, want: 10 * mib},
		"Required":        {reason: "What is required is given.", empty: true, required: 10 * mib, want: 10 * mib},
		"RoundedUp":       {reason: "Sizes are whole blocks.", empty: true, required: 10*mib + 1, want: 10*mib + sizeStep},
		"RoundedOverMost": {reason: "Rounding may not break the limit.", empty: true, required: 10*mib + 1, most: 10*mib + 2, code: codes.OutOfRange},
		"TinyLimit":       {reason: "A volume has at least one block.", empty: true, most: 100, code: codes.OutOfRange},
		"Reversed":        {reason: "A range has two ends in order.", empty: true, required: 2 * mib, most: mib, code: codes.InvalidArgument},
		"Negative":        {reason: "Sizes are not negative.", empty: true, required: -1, code: codes.InvalidArgument},
		"TooLarge":        {reason: "There is a largest volume.", empty: true, required: maxSize + 1, code: codes.OutOfRange},
		"SourceSize":      {reason: "A copy is as large as its source.", floor: 20 * mib, want: 20 * mib},
		"LargerThanSrc":   {reason: "A copy may be larger.", floor: 20 * mib, required: 30 * mib, want: 30 * mib},
		"SourceTooLarge":  {reason: "A source has to fit.", floor: 20 * mib, most: 10 * mib, code: codes.OutOfRange},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &csi.CapacityRange{RequiredBytes: tc.required, LimitBytes: tc.most}
			got, err := sizeFrom(r, tc.floor)
			if tc.empty {
				got, err = newSize(r)
			}
			if got != tc.want || status.Code(err) != tc.code {
				t.Errorf("%s\nwant %d, %s, got %d, %v", tc.reason, tc.want, tc.code, got, err)
			}
		})
	}
}
