package images

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// testRecipe is a small image under busybox's name.
func testRecipe(text string) recipe {
	return recipe{
		name:       Busybox,
		ref:        BusyboxRef,
		user:       nonRoot,
		entrypoint: []string{"/hello"},
		layers: [][]entry{
			baseEntries(),
			{file("/hello", 0o755, text), symlink("/hallo", "hello")},
		},
	}
}

// testLayout returns a folder with a layout of these recipes.
func testLayout(t *testing.T, recipes ...recipe) string {
	t.Helper()
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recipes {
		if _, err := s.put(r); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSameContentSameDigest(t *testing.T) {
	var digests []string
	for range 2 {
		s, err := openStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.put(testRecipe("hello"))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, r.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds of the same content differ: %s and %s", digests[0], digests[1])
	}
}

func TestPut(t *testing.T) {
	first := testRecipe("one")
	cases := map[string]struct {
		reason        string
		second        recipe
		damage        bool
		wantUnchanged bool
	}{
		"Same":    {reason: "an unchanged image is kept", second: testRecipe("one"), wantUnchanged: true},
		"Content": {reason: "other content is another image", second: testRecipe("two")},
		"User": {reason: "the configuration is part of the image", second: func() recipe {
			r := testRecipe("one")
			r.user = "1:1"
			return r
		}()},
		"Damaged": {reason: "a layout that lost a blob is repaired", second: testRecipe("one"), damage: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := openStore(testLayout(t, first))
			if err != nil {
				t.Fatal(err)
			}
			if tc.damage {
				damage(t, s)
			}
			got, err := s.put(tc.second)
			if err != nil {
				t.Fatal(err)
			}
			if got.Unchanged != tc.wantUnchanged {
				t.Errorf("%s: unchanged = %t, want %t", tc.reason, got.Unchanged, tc.wantUnchanged)
			}
			if err := s.collect(); err != nil {
				t.Fatal(err)
			}
			index, err := s.path.ImageIndex()
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(index); err != nil {
				t.Errorf("%s: layout is not valid: %v", tc.reason, err)
			}
		})
	}
}

// TestReplaced follows one image through many builds: its tag always means the
// newest, digests of the last few are still served, and the layout does not
// grow for ever.
func TestReplaced(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var digests []string
	put := func(text string) {
		t.Helper()
		r, err := s.put(testRecipe(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.collect(); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, r.Digest)
	}
	for _, text := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		put(text)
	}
	put("6") // as after a change that was taken back
	server := serve(t, string(s.path))
	status := func(reference string) int {
		t.Helper()
		res, err := http.Get(server.URL + "/v2/library/busybox/manifests/" + reference + "?ns=docker.io")
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("Docker-Content-Digest"); reference == "latest" && got != digests[len(digests)-1] {
			t.Errorf("the tag means %s, want the newest, %s", got, digests[len(digests)-1])
		}
		return res.StatusCode
	}
	status("latest")
	for i, want := range []int{
		http.StatusNotFound, http.StatusNotFound, http.StatusOK, http.StatusOK, http.StatusOK, http.StatusOK, http.StatusOK,
	} {
		if got := status(digests[i]); got != want {
			t.Errorf("build %d of 8 answers %d, want %d", i+1, got, want)
		}
	}
	// Of five images a manifest, a configuration and a layer each, and one layer that they share.
	if got := countFiles(t, filepath.Join(string(s.path), "blobs")); got != 16 {
		t.Errorf("layout has %d blobs, want 16", got)
	}
}

// damage removes a layer of the only image.
func damage(t *testing.T, s store) {
	t.Helper()
	index, err := s.index()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := s.manifest(index.Manifests[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.blob(manifest.Layers[1].Digest)); err != nil {
		t.Fatal(err)
	}
}

func countFiles(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHandler(t *testing.T) {
	dir := testLayout(t, testRecipe("hello"))
	server := serve(t, dir)
	digest := onlyDigest(t, dir).String()
	cases := map[string]struct {
		method, path string
		want         int
	}{
		"Ping":          {http.MethodGet, "/v2/", http.StatusOK},
		"FullName":      {http.MethodGet, "/v2/docker.io/library/busybox/manifests/latest", http.StatusOK},
		"OfficialName":  {http.MethodGet, "/v2/library/busybox/manifests/latest", http.StatusOK},
		"ShortName":     {http.MethodHead, "/v2/busybox/manifests/latest", http.StatusOK},
		"Mirror":        {http.MethodHead, "/v2/library/busybox/manifests/latest?ns=docker.io", http.StatusOK},
		"Digest":        {http.MethodGet, "/v2/library/busybox/manifests/" + digest + "?ns=docker.io", http.StatusOK},
		"UnknownImage":  {http.MethodGet, "/v2/library/nginx/manifests/latest?ns=docker.io", http.StatusNotFound},
		"UnknownTag":    {http.MethodHead, "/v2/library/busybox/manifests/1.0?ns=docker.io", http.StatusNotFound},
		"OtherRegistry": {http.MethodHead, "/v2/library/busybox/manifests/latest?ns=quay.io", http.StatusNotFound},
		"UnknownBlob":   {http.MethodGet, "/v2/library/busybox/blobs/sha256:" + zeros, http.StatusNotFound},
		"NoDigest":      {http.MethodGet, "/v2/library/busybox/blobs/sha256:..", http.StatusBadRequest},
		"Push":          {http.MethodPut, "/v2/library/busybox/manifests/latest", http.StatusMethodNotAllowed},
		"Upload":        {http.MethodPost, "/v2/library/busybox/blobs/uploads/", http.StatusMethodNotAllowed},
		"OtherPath":     {http.MethodGet, "/index.json", http.StatusNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != tc.want {
				t.Errorf("%s %s = %d, want %d", tc.method, tc.path, res.StatusCode, tc.want)
			}
		})
	}
}

func TestHandlerWithoutImages(t *testing.T) {
	server := serve(t, filepath.Join(t.TempDir(), "later"))
	res, err := http.Get(server.URL + "/v2/library/busybox/manifests/latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("a layout that does not exist answered %d, want %d", res.StatusCode, http.StatusNotFound)
	}
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

// TestMirror pulls as containerd does with the configuration that
// WriteMirrorConfig leaves: the name is the upstream one, and no upstream
// registry is asked.
func TestMirror(t *testing.T) {
	dir := testLayout(t, testRecipe("hello"))
	server := serve(t, dir)
	hosts := t.TempDir()
	if err := WriteMirrorConfig(hosts, server.URL); err != nil {
		t.Fatal(err)
	}
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(t.Context(), config.HostOptions{
		HostDir: config.HostDirFromRoot(hosts),
	})})
	want := onlyDigest(t, dir).String()
	for _, ref := range []string{BusyboxRef, "docker.io/library/busybox@" + want} {
		name, d, err := resolver.Resolve(t.Context(), ref)
		if err != nil {
			t.Fatalf("resolve %s: %v", ref, err)
		}
		if d.Digest.String() != want {
			t.Errorf("resolve %s = %s, want %s", ref, d.Digest, want)
		}
		fetcher, err := resolver.Fetcher(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var manifest ocispec.Manifest
		if err := json.Unmarshal(fetch(t, fetcher, d), &manifest); err != nil {
			t.Fatal(err)
		}
		if len(manifest.Layers) != 2 {
			t.Errorf("%s has %d layers, want 2", ref, len(manifest.Layers))
		}
		for _, b := range append(manifest.Layers, manifest.Config) {
			fetch(t, fetcher, b)
		}
	}
}

// fetch reads a blob and checks it against its descriptor.
func fetch(t *testing.T, fetcher remotes.Fetcher, d ocispec.Descriptor) []byte {
	t.Helper()
	body, err := fetcher.Fetch(t.Context(), d)
	if err != nil {
		t.Fatalf("fetch %s: %v", d.Digest, err)
	}
	text, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	if got := d.Digest.Algorithm().FromBytes(text); got != d.Digest || int64(len(text)) != d.Size {
		t.Errorf("fetched %d bytes with digest %s, want %d with %s", len(text), got, d.Size, d.Digest)
	}
	return text
}

func TestWriteMirrorConfigRefusesOtherURLs(t *testing.T) {
	for _, url := range []string{"", "10.0.0.1:5000", "unix:///run/registry", "http://"} {
		if err := WriteMirrorConfig(t.TempDir(), url); err == nil {
			t.Errorf("WriteMirrorConfig(%q) took it, want an error", url)
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	dir := testLayout(t)
	go func() { done <- Serve(ctx, listener, dir) }()
	res, err := http.Get("http://" + listener.Addr().String() + "/v2/")
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve ended with %v, want nil", err)
	}
	if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

// TestBuildAndSave builds a real image from this repository, twice, and reads
// the archive back with another implementation.
func TestBuildAndSave(t *testing.T) {
	var results []Result
	o := Options{Root: "../..", Dir: t.TempDir(), Only: []string{Pause}, Report: func(r Result) { results = append(results, r) }}
	for range 2 {
		if err := Build(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if len(results) != 2 || results[0].Unchanged || !results[1].Unchanged || results[0].Digest != results[1].Digest {
		t.Errorf("two builds reported %+v, want the second unchanged", results)
	}
	if err := Save(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(o.Dir, "pause.tar")
	tag, err := name.NewTag(PauseRef)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Errorf("saved image is not valid: %v", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/pause"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	if got := filesOf(t, img); !cmp.Equal(got, []string{"pause"}) {
		t.Errorf("the pause image has %v, want its program alone", got)
	}
}

func filesOf(t *testing.T, img v1.Image) []string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for archive := tar.NewReader(content); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
		}
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func TestBuildRefusesUnknownImage(t *testing.T) {
	if err := Build(t.Context(), Options{Dir: t.TempDir(), Only: []string{"nginx"}}); err == nil {
		t.Error("Build of an unknown image succeeded, want an error that lists the known ones")
	}
}

func serve(t *testing.T, dir string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(Handler(dir))
	t.Cleanup(server.Close)
	return server
}

func onlyDigest(t *testing.T, dir string) v1.Hash {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	index, err := s.index()
	if err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 {
		t.Fatalf("layout has %d images, want 1", len(index.Manifests))
	}
	return index.Manifests[0].Digest
}
