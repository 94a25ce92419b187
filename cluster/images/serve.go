package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Serve answers pulls from the layout in dir on the listener until the context
// ends, and then closes the listener. The layout is read at each request, so
// images built meanwhile are served at once.
func Serve(ctx context.Context, listener net.Listener, dir string) error {
	server := &http.Server{Handler: Handler(dir), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		// Pulls under way have no one left to serve: nothing is waited for.
		_ = server.Close()
	})
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve images: %w", err)
	}
	return nil
}

// Handler is the read-only part of the OCI distribution protocol over the
// layout in dir. An image is found under the full reference it was built as and
// under the shorter one that containerd asks a mirror for, which names the
// registry in the query (`?ns=docker.io`). The layout may not exist yet.
func Handler(dir string) http.Handler {
	s := store{path: layout.Path(dir)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only")
			return
		}
		if r.URL.Path == "/v2/" || r.URL.Path == "/v2" {
			w.WriteHeader(http.StatusOK)
			return
		}
		repository, kind, reference, ok := parsePath(r.URL.Path)
		switch {
		case ok && kind == "manifests":
			s.serveManifest(w, r, repository, reference)
		case ok && kind == "blobs":
			s.serveBlob(w, r, reference)
		default:
			refuse(w, http.StatusNotFound, "UNSUPPORTED", "only manifests and blobs are served")
		}
	})
}

// parsePath splits /v2/<repository>/<kind>/<reference>; a repository has slashes
// of its own.
func parsePath(path string) (repository, kind, reference string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v2/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 3 {
		return "", "", "", false
	}
	n := len(parts)
	return strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1], true
}

func (s store) serveManifest(w http.ResponseWriter, r *http.Request, repository, reference string) {
	index, err := s.index()
	if errors.Is(err, os.ErrNotExist) {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "no images have been built")
		return
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	wanted := repositories(r.URL.Query().Get("ns"), repository)
	i := slices.IndexFunc(index.Manifests, func(d v1.Descriptor) bool { return matches(d, wanted, reference) })
	if i < 0 {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "no image "+repository+" "+reference)
		return
	}
	d := index.Manifests[i]
	w.Header().Set("Content-Type", string(d.MediaType))
	s.sendBlob(w, r, d.Digest)
}

func (s store) serveBlob(w http.ResponseWriter, r *http.Request, reference string) {
	digest, err := v1.NewHash(reference)
	if err != nil {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	s.sendBlob(w, r, digest)
}

func (s store) sendBlob(w http.ResponseWriter, r *http.Request, digest v1.Hash) {
	f, err := os.Open(s.blob(digest))
	if errors.Is(err, os.ErrNotExist) {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "no content "+digest.String())
		return
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	defer func() { _ = f.Close() }() // only read from
	w.Header().Set("Docker-Content-Digest", digest.String())
	w.Header().Set("Etag", strconv.Quote(digest.String()))
	http.ServeContent(w, r, "", time.Time{}, f)
}

// repositories lists the full names that a requested repository may stand for.
func repositories(registry, repository string) []string {
	if registry == "" {
		return []string{repository, "docker.io/" + repository, "docker.io/library/" + repository}
	}
	return []string{registry + "/" + repository}
}

// matches says whether an image of the layout is one of the wanted repositories
// at the tag or digest. A tag means the newest image, a digest any.
func matches(d v1.Descriptor, wanted []string, reference string) bool {
	if reference == d.Digest.String() {
		repository, _ := splitRef(cmp.Or(d.Annotations[refAnnotation], d.Annotations[replacedAnnotation]))
		return slices.Contains(wanted, repository)
	}
	repository, tag := splitRef(d.Annotations[refAnnotation])
	return slices.Contains(wanted, repository) && reference == tag
}

// splitRef takes a reference apart at its tag. Ours always have one.
func splitRef(ref string) (repository, tag string) {
	i := strings.LastIndexByte(ref, ':')
	if i < 0 {
		return ref, ""
	}
	return ref[:i], ref[i+1:]
}

// refuse answers with an error as the protocol wants it.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	type item struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	// The client is gone if this fails, and there is no one else to tell.
	_ = json.NewEncoder(w).Encode(map[string][]item{"errors": {{Code: code, Message: message}}})
}
