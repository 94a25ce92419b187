package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
)

// call runs the worker and returns its code, its result and what it printed.
func callWorker(t *testing.T, args []string, env map[string]string) (int, worker.Result, string) {
	t.Helper()
	message := filepath.Join(t.TempDir(), "message")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append([]string{"-termination-log", message}, args...), func(k string) string { return env[k] }, &stdout, &stderr)
	text, err := os.ReadFile(message)
	if err != nil {
		return code, worker.Result{}, stdout.String() + stderr.String()
	}
	result, ok := worker.Parse(text)
	if !ok {
		t.Errorf("termination message %q holds no result", text)
	}
	return code, result, stdout.String() + stderr.String() + string(text)
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHTTP(t *testing.T) {
	packed := movertest.Tar(t, tar.Header{Typeflag: tar.TypeReg, Name: "app/f", Size: 2}, tar.Header{Typeflag: tar.TypeReg, Name: "app/d/g", Size: 2})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); strings.HasPrefix(r.URL.Path, "/private") && password != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch filepath.Base(r.URL.Path) {
		case "app.tar":
			_, _ = w.Write(packed)
		case "hello.txt":
			_, _ = w.Write([]byte("hello"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	secret := t.TempDir()
	movertest.Mount(t, secret, map[string]string{"username": "u", "password": "s3cret\n", "sluice.dev.offer": "HTTPSource.sluice.dev 127.0.0.1\n"})
	cases := map[string]struct {
		reason string
		args   []string
		env    map[string]string
		config map[string]string
		code   int
		fails  string
		want   map[string]string
		modes  map[string]os.FileMode
		device bool
	}{
		"File": {
			reason: "a file by environment, optional settings being empty",
			env:    map[string]string{"SOURCE_URL": s.URL + "/hello.txt", "SOURCE_DIGEST": "", "SOURCE_EXTRACT": "", "SOURCE_FILE_MODE": "0600", "SOURCE_STRIP_COMPONENTS": ""},
			want:   map[string]string{"hello.txt": "hello"}, modes: map[string]os.FileMode{"hello.txt": 0o600},
		},
		"Device": {
			reason: "a file onto a device", env: map[string]string{"SOURCE_URL": s.URL + "/hello.txt"}, device: true,
			want: map[string]string{"device": "hello\x00\x00\x00"},
		},
		"Archive": {
			reason: "an archive by flags", args: []string{"-url", s.URL + "/app.tar", "-extract", "-strip-components=1"},
			want: map[string]string{"f": "ap", "d": "dir", "d/g": "ap"},
		},
		"Precedence": {
			reason: "flags before environment before file", args: []string{"-file-name", "flag"},
			env:    map[string]string{"SOURCE_FILE_NAME": "environment", "SOURCE_FILE_MODE": "0640"},
			config: map[string]string{"url": s.URL + "/hello.txt", "file-name": "file", "file-mode": "0600"},
			want:   map[string]string{"flag": "hello"}, modes: map[string]os.FileMode{"flag": 0o640},
		},
		"Credentials": {
			reason: "credentials that are offered", env: map[string]string{"SOURCE_URL": s.URL + "/private/hello.txt", "SOURCE_CREDENTIALS": secret, "SOURCE_REQUIRE_OFFER": "HTTPSource.sluice.dev"},
			want: map[string]string{"hello.txt": "hello"},
		},
		"NotOffered": {
			reason: "credentials that are not", env: map[string]string{"SOURCE_URL": s.URL + "/private/hello.txt", "SOURCE_CREDENTIALS": secret, "SOURCE_REQUIRE_OFFER": "Other.sluice.dev"},
			code: worker.ExitPermanent, fails: worker.ReasonSecretNotOffered,
		},
		"NoCredentials": {reason: "none", env: map[string]string{"SOURCE_URL": s.URL + "/private/hello.txt"}, code: worker.ExitPermanent, fails: worker.ReasonSourceForbidden},
		"NotAllowed":    {reason: "this very host", env: map[string]string{"SOURCE_URL": s.URL + "/hello.txt", "SOURCE_ALLOW_ADDRESS": "10.0.0.0/8"}, code: worker.ExitPermanent, fails: worker.ReasonAddressNotAllowed},
		"Missing":       {reason: "no such file", env: map[string]string{"SOURCE_URL": s.URL + "/none"}, code: worker.ExitPermanent, fails: worker.ReasonSourceMissing},
		"Continue":      {reason: "no such file, and so be it", env: map[string]string{"SOURCE_URL": s.URL + "/none", "SOURCE_ON_MISSING": "Continue"}, fails: worker.ReasonSourceMissing, want: map[string]string{}},
		"ArchiveDevice": {reason: "an archive onto a device", args: []string{"-url", s.URL + "/app.tar", "-extract"}, device: true, code: worker.ExitPermanent, fails: worker.ReasonUnsupportedFormat},
		"NoURL":         {reason: "no URL", code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
		"BadFlag":       {reason: "a flag that is none", args: []string{"-ulr", "x"}, code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
		"BadSetting":    {reason: "a setting that is none", config: map[string]string{"ulr": "x"}, code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
		"BadValue":      {reason: "a value that is none", env: map[string]string{"SOURCE_URL": s.URL, "SOURCE_EXTRACT": "perhaps"}, code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
		"BadOnMissing":  {reason: "another", env: map[string]string{"SOURCE_URL": s.URL, "SOURCE_ON_MISSING": "continue"}, code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
		"BadAddress":    {reason: "another", env: map[string]string{"SOURCE_URL": s.URL, "SOURCE_ALLOW_ADDRESS": "localhost"}, code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
		"BadFormat":     {reason: "another", env: map[string]string{"SOURCE_URL": s.URL, "SOURCE_FORMAT": "rar"}, code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
		"Argument":      {reason: "an argument too much", args: []string{"x"}, code: worker.ExitUsage, fails: worker.ReasonWorkerFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := t.TempDir()
			env := map[string]string{worker.EnvTarget: target, worker.EnvVolumeMode: worker.ModeFilesystem, "SOURCE_ALLOW_ADDRESS": "127.0.0.0/8"}
			if tc.device {
				env[worker.EnvTarget], env[worker.EnvVolumeMode] = filepath.Join(target, "device"), worker.ModeBlock
				if err := os.WriteFile(env[worker.EnvTarget], make([]byte, 8), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for k, v := range tc.env {
				env[k] = v
			}
			args := append([]string{"http"}, tc.args...)
			if tc.config != nil {
				raw, err := json.Marshal(tc.config)
				if err != nil {
					t.Fatal(err)
				}
				env["SOURCE_CONFIG"] = write(t, "config.json", string(raw))
			}
			code, result, printed := callWorker(t, args, env)
			if code != tc.code || result.Reason != tc.fails {
				t.Errorf("%s: code %d, %+v; want %d, %q\n%s", tc.reason, code, result, tc.code, tc.fails, printed)
			}
			if strings.Contains(printed, "s3cret") {
				t.Errorf("%s: the worker tells the secret:\n%s", tc.reason, printed)
			}
			if tc.want != nil {
				if diff := cmp.Diff(tc.want, movertest.Tree(t, target)); diff != "" {
					t.Errorf("%s: volume: -want +got\n%s", tc.reason, diff)
				}
			}
			for file, want := range tc.modes {
				if info, err := os.Stat(filepath.Join(target, file)); err != nil || info.Mode() != want {
					t.Errorf("%s: %q: %v, %v, want mode %v", tc.reason, file, info, err, want)
				}
			}
		})
	}
}

func TestInline(t *testing.T) {
	configMap, target := t.TempDir(), t.TempDir()
	movertest.Mount(t, configMap, map[string]string{"app.conf": "A"})
	env := map[string]string{
		worker.EnvTarget: target, "SOURCE_CONFIG_MAP": configMap, "SOURCE_SECRET": "",
		"SOURCE_MANIFEST": write(t, "manifest", "file aGVsbG8= 0600 d29ybGQ=\ntree configMap ZXRj -\n"),
	}
	code, result, printed := callWorker(t, []string{"inline"}, env)
	if code != worker.ExitOK || result.Files != 2 {
		t.Errorf("code %d, %+v\n%s", code, result, printed)
	}
	if diff := cmp.Diff(map[string]string{"hello": "world", "etc": "dir", "etc/app.conf": "A"}, movertest.Tree(t, target)); diff != "" {
		t.Errorf("volume: -want +got\n%s", diff)
	}
	env["SOURCE_MANIFEST"] = write(t, "manifest", "tree secret  -\n")
	if code, result, _ := callWorker(t, []string{"inline"}, env); code != worker.ExitFailed {
		t.Errorf("a tree without a directory: code %d, %+v", code, result)
	}
	for _, manifest := range []string{"", filepath.Join(target, "none"), write(t, "manifest", "rubbish\n")} {
		env["SOURCE_MANIFEST"] = manifest
		if code, result, _ := callWorker(t, []string{"inline"}, env); code != worker.ExitUsage {
			t.Errorf("manifest %q: code %d, %+v, want %d", manifest, code, result, worker.ExitUsage)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-help"}, {"files", "-help"}, {"inline", "-h"}, {"http", "--help"}} {
		code, _, printed := callWorker(t, args, nil)
		if code != worker.ExitOK || !strings.Contains(printed, "usage: sluice-worker") {
			t.Errorf("sluice-worker %v: code %d\n%s", args, code, printed)
		}
	}
}
