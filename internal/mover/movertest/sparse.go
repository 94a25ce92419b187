package movertest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// SparseTar returns a tar archive with one sparse file of the GNU format 0.1
// in pax headers: size bytes long, of which the last data are letters. The
// standard library reads such archives and does not write them.
func SparseTar(t testing.TB, name string, size, data int64) []byte {
	t.Helper()
	var records strings.Builder
	for _, r := range [][2]string{
		{"GNU.sparse.size", fmt.Sprint(size)},
		{"GNU.sparse.numblocks", "1"},
		{"GNU.sparse.map", fmt.Sprintf("%d,%d", size-data, data)},
		{"GNU.sparse.name", name},
	} {
		records.WriteString(paxRecord(r[0], r[1]))
	}
	var out bytes.Buffer
	for _, part := range []struct {
		flag    byte
		content string
	}{{'x', records.String()}, {'0', Content("z", data)}} {
		out.Write(header(part.flag, name, int64(len(part.content))))
		out.WriteString(part.content)
		if rest := len(part.content) % 512; rest > 0 {
			out.Write(make([]byte, 512-rest))
		}
	}
	out.Write(make([]byte, 1024))
	return out.Bytes()
}

// paxRecord is "length key=value\n", where the length counts itself.
func paxRecord(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	for n := len(rest); ; n++ {
		if record := fmt.Sprint(n) + rest; len(record) == n {
			return record
		}
	}
}

// header is a ustar header.
func header(flag byte, name string, size int64) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00        ", size, ModTime.Unix()))
	h[156] = flag
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// Arena makes a target directory with a neighbour and returns it with a check
// that nothing but the target has changed.
func Arena(t *testing.T) (target string, unharmed func()) {
	t.Helper()
	return arena(t)
}
