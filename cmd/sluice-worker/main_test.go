package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/mover/movertest"
)

func TestRun(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	cases := map[string]struct {
		reason string
		ctx    context.Context
		args   []string
		env    map[string]string
		files  map[string]string
		device bool
		code   int
		want   worker.Result
		tree   map[string]string
	}{
		"Files": {
			reason: "the files of a template land on the volume",
			args:   []string{"files"}, files: map[string]string{"example.txt": "Hello, world!\n"},
			want: worker.Result{Bytes: 14, Files: 1, Digest: "sha256:d9014c4624844aa5bac314773d6b689ad467fa4e1d1a50a1b8a99d5a95f72ff5"},
			tree: map[string]string{"example.txt": "Hello, world!\n"},
		},
		"Device": {
			reason: "one file lands on the device",
			args:   []string{"files"}, files: map[string]string{"image": "Hello, world!\n"}, device: true,
			want: worker.Result{Bytes: 14, Files: 1, Digest: "sha256:d9014c4624844aa5bac314773d6b689ad467fa4e1d1a50a1b8a99d5a95f72ff5"},
			tree: map[string]string{"device": "Hello, world!\n\x00\x00"},
		},
		"TwoOnDevice": {
			reason: "two files do not fit on one device",
			args:   []string{"files"}, files: map[string]string{"a": "A", "b": "B"}, device: true,
			code: worker.ExitPermanent,
			want: worker.Result{Reason: worker.ReasonUnsupportedFormat, Permanent: true, Message: `copy source: refuse entry "b": a block volume holds one file, and this is the second`},
		},
		"Empty": {
			reason: "no file is a failure for good",
			args:   []string{"files"}, code: worker.ExitPermanent,
			want: worker.Result{Reason: worker.ReasonSourceEmpty, Permanent: true, Message: "resolve source: list files: there is none"},
		},
		"NoSource": {
			reason: "a template that names no source cannot get better", code: worker.ExitUsage,
			want: worker.Result{Reason: worker.ReasonWorkerFailed, Permanent: true, Message: "choose source: want an argument that names it"},
		},
		"UnknownSource": {
			reason: "nor one that names a source of another version", args: []string{"tape"}, code: worker.ExitUsage,
			want: worker.Result{Reason: worker.ReasonWorkerFailed, Permanent: true, Message: `choose source: there is none called "tape"`},
		},
		"NoTarget": {
			reason: "a worker outside of a population has no target", args: []string{"files"}, files: map[string]string{"a": "A"},
			env: map[string]string{worker.EnvTarget: ""}, code: worker.ExitUsage,
			want: worker.Result{Reason: worker.ReasonWorkerFailed, Permanent: true, Message: "choose target: SLUICE_TARGET is not set"},
		},
		"Stopped": {
			reason: "a worker that is told to stop says so", ctx: stopped,
			args: []string{"files"}, files: map[string]string{"a": "A"}, code: worker.ExitStopped,
			want: worker.Result{Reason: worker.ReasonWorkerFailed, Message: "stopped before it had finished: context canceled"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in, out, message := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "message")
			for file, content := range tc.files {
				if err := os.WriteFile(filepath.Join(in, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			env := map[string]string{worker.EnvFiles: in, worker.EnvTarget: out, worker.EnvVolumeMode: worker.ModeFilesystem}
			if tc.device {
				env[worker.EnvTarget], env[worker.EnvVolumeMode] = filepath.Join(out, "device"), worker.ModeBlock
				if err := os.WriteFile(env[worker.EnvTarget], make([]byte, 16), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for k, v := range tc.env {
				env[k] = v
			}
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			var stdout, stderr bytes.Buffer
			args := append([]string{"-termination-log", message}, tc.args...)
			if code := run(ctx, args, func(k string) string { return env[k] }, &stdout, &stderr); code != tc.code {
				t.Errorf("%s: exit code %d, want %d\n%s", tc.reason, code, tc.code, stderr.String())
			}
			text, err := os.ReadFile(message)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := worker.Parse(text)
			if !ok {
				t.Fatalf("%s: termination message %q holds no result", tc.reason, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: result: -want +got\n%s", tc.reason, diff)
			}
			if tc.tree != nil {
				if diff := cmp.Diff(tc.tree, movertest.Tree(t, out)); diff != "" {
					t.Errorf("%s: volume: -want +got\n%s", tc.reason, diff)
				}
			}
		})
	}
}
