package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
)

// BenchmarkArchive extracts an archive from a web server, in turns with what
// one would write without Sluice: curl | tar, and a sync of the file system. The
// metric floor-ns/op is that, and ratio is how often longer ours takes, verified.
func BenchmarkArchive(b *testing.B) {
	for _, size := range []struct {
		name         string
		files, bytes int
	}{{"Small", 20_000, 1 << 10}, {"Medium", 1_000, 128 << 10}, {"Large", 4, 64 << 20}} {
		b.Run(size.name, func(b *testing.B) { benchmarkArchive(b, size.files, size.bytes) })
	}
}

func benchmarkArchive(b *testing.B, files, size int) {
	b.Helper()
	for _, tool := range []string{"curl", "tar", "sync"} {
		if _, err := exec.LookPath(tool); err != nil {
			b.Skipf("the floor needs %s", tool)
		}
	}
	archive := filepath.Join(b.TempDir(), "archive.tar.gz")
	writeArchive(b, archive, files, size)
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(archive))))
	b.Cleanup(s.Close)
	url := s.URL + "/archive.tar.gz"
	var floor time.Duration
	b.SetBytes(int64(files) * int64(size))
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		target := b.TempDir()
		start := time.Now()
		cmd := exec.CommandContext(b.Context(), "sh", "-c", `curl -sS "$1" | tar -xz -C "$2" && sync -f "$2"`, "sh", url, target)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		floor += time.Since(start)
		target = b.TempDir()
		env := map[string]string{
			worker.EnvTarget: target, worker.EnvVolumeMode: worker.ModeFilesystem,
			"SOURCE_URL": url, "SOURCE_EXTRACT": "true", "SOURCE_ALLOW_ADDRESS": "127.0.0.0/8",
		}
		var log bytes.Buffer
		b.StartTimer()
		code := run(b.Context(), []string{"-termination-log", "", "http"}, func(k string) string { return env[k] }, io.Discard, &log)
		b.StopTimer()
		if code != worker.ExitOK {
			b.Fatalf("exit code %d\n%s", code, log.String())
		}
		b.StartTimer()
	}
	b.StopTimer()
	perFloor := float64(floor.Nanoseconds()) / float64(b.N)
	b.ReportMetric(perFloor, "floor-ns/op")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perFloor, "ratio")
}

// writeArchive writes an archive of files in folders of a hundred, which
// compress to about half.
func writeArchive(b *testing.B, path string, files, size int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		b.Fatal(err)
	}
	w := tar.NewWriter(z)
	content := make([]byte, size)
	state := uint32(1)
	for i := range files {
		for j := range content {
			state = state*1664525 + 1013904223
			content[j] = byte(state>>24) & 0x1f
		}
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: fmt.Sprintf("d%03d/f%05d", i/100, i), Mode: 0o644, Size: int64(size), ModTime: time.Unix(1_700_000_000, 0),
		}); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []io.Closer{w, z, f} {
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
