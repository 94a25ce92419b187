package clustertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/lifecycle"
	"github.com/sluice-dev/sluice/cluster/residue"
)

// asStarter makes the test binary start a cluster, print its name and wait to
// be killed.
const asStarter = "SLUICE_TEST_AS_STARTER"

func TestMain(m *testing.M) {
	if os.Getenv(asStarter) != "" {
		c, err := Start(context.Background(), Config{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(c.Name)
		select {}
	}
	os.Exit(m.Run())
}

// machine is what a cluster must not change on this side of its namespaces.
type machine struct {
	Rules, Netns, Mounts []string
}

func lookAtMachine(t *testing.T) machine {
	t.Helper()
	var m machine
	// Counters of packets differ, rules must not.
	if out, err := exec.CommandContext(t.Context(), "iptables-save").Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") {
				m.Rules = append(m.Rules, line)
			}
		}
	}
	names, err := filepath.Glob("/run/netns/*")
	if err != nil {
		t.Fatal(err)
	}
	m.Netns = names
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			m.Mounts = append(m.Mounts, fields[4])
		}
	}
	slices.Sort(m.Mounts)
	return m
}

// expectGone checks that nothing of the cluster is left, its state included.
func expectGone(t *testing.T, name string, before machine) {
	t.Helper()
	left, err := LeftoversOf(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("cluster %q left %v", name, left)
	}
	dir := layoutOf(t, name).Dir
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("cluster %q left its state folder: %v", name, err)
	}
	if diff := cmp.Diff(before, lookAtMachine(t)); diff != "" {
		t.Errorf("cluster %q changed the machine (-before +after):\n%s", name, diff)
	}
}

func layoutOf(t *testing.T, name string) config.Layout {
	t.Helper()
	cfg, err := Config{Name: name}.WithDefaults(nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Layout()
}

// findInit returns the cluster's first process.
func findInit(t *testing.T, name string) residue.Init {
	t.Helper()
	first, ok, err := residue.FindInit(layoutOf(t, name).Dir)
	if err != nil || !ok {
		t.Fatalf("find the first process of cluster %q: %t, %v", name, ok, err)
	}
	return first
}

// holdVolumes starts a Pod that keeps a mounted and a raw volume in use: mounts
// and loop devices, one of them behind another.
func holdVolumes(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	createClaim(t, client, claim("files", "", corev1.PersistentVolumeFilesystem))
	createClaim(t, client, claim("raw", "sluice-sim-immediate", corev1.PersistentVolumeBlock))
	pod := busybox("holder", "", "sleep 3600")
	mountClaim(pod, "files")
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "raw", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "raw"},
	}})
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/disk"}}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPhase(t, client, "holder", corev1.PodRunning)
}

func TestNothingIsLeft(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(*testing.T, *Cluster)
	}{
		"stopped": {
			reason: "the regular end, with Pods and volumes in use",
			end: func(t *testing.T, c *Cluster) {
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
			},
		},
		"taken down by somebody else": {
			reason: "down with a name ends a test's cluster as well, in order",
			end: func(t *testing.T, c *Cluster) {
				begin := time.Now()
				if err := lifecycle.Down(filepath.Dir(layoutOf(t, c.Name).Dir), c.Name); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took > 30*time.Second {
					t.Errorf("took %s, want an orderly end", took)
				}
				<-c.Failed()
			},
		},
		"first process killed": {
			reason: "the kernel ends the rest; what outlives it is removed by down",
			end: func(t *testing.T, c *Cluster) {
				first := findInit(t, c.Name)
				if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				<-c.Failed()
				if err := lifecycle.Down(filepath.Dir(layoutOf(t, c.Name).Dir), c.Name); err != nil {
					t.Error(err)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := lookAtMachine(t)
			c, err := Start(t.Context(), Config{Nodes: Nodes(1), CSI: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Stop() }) // it has failed by then, on purpose
			holdVolumes(t, kubernetes.NewForConfigOrDie(c.RESTConfig()))
			tc.end(t, c)
			expectGone(t, c.Name, before)
		})
	}
}

// TestStarterKilled shows that a cluster ends by itself with the process that
// started it, even if that had no chance to say so.
func TestStarterKilled(t *testing.T) {
	before := lookAtMachine(t)
	starter := exec.CommandContext(t.Context(), os.Args[0])
	starter.Env = append(os.Environ(), asStarter+"=1")
	starter.Stderr = os.Stderr
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(line)
	findInit(t, name)
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait() // killed, as asked
	known, err := lifecycle.List(filepath.Dir(layoutOf(t, name).Dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if k.Name == name && k.Attached {
			t.Error("the cluster is said to belong to a running process, so `down` would leave it alone")
		}
	}
	eventually(t, 30*time.Second, func(context.Context) error {
		first, running, err := residue.FindInit(layoutOf(t, name).Dir)
		if err != nil {
			return err
		}
		if running {
			return errorf("process %d still runs", first.PID)
		}
		return nil
	})
	expectGone(t, name, before)
}

// TestComponentDies shows that a run ends with the death of a component, and
// why.
func TestComponentDies(t *testing.T) {
	before := lookAtMachine(t)
	c, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	killComponent(t, c.Name, "kube-scheduler")
	select {
	case <-c.Failed():
	case <-time.After(10 * time.Second):
		t.Fatal("the death of the scheduler was not noticed")
	}
	err = c.Err()
	for _, want := range []string{"kube-scheduler died: signal: killed", "end of the log of kube-scheduler"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reason: got %v, want it to contain %q", err, want)
		}
	}
	if stopped := c.Stop(); stopped == nil {
		t.Error("Stop of a failed cluster returns no error")
	}
	expectGone(t, c.Name, before)
}

// killComponent kills a program of a cluster from outside of its namespaces.
func killComponent(t *testing.T, cluster, program string) {
	t.Helper()
	inside, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", findInit(t, cluster).PID))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		path, _, _ := strings.Cut(string(cmdline), "\x00")
		if err != nil || filepath.Base(path) != program {
			continue
		}
		if ns, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/net")); err != nil || ns != inside {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("%s of cluster %q does not run", program, cluster)
}

// TestStartRefused shows that a start that cannot succeed says why and leaves
// nothing.
func TestStartRefused(t *testing.T) {
	empty := t.TempDir()
	cases := map[string]struct {
		reason string
		config Config
		want   string
	}{
		"component that does not start": {
			reason: "the end of its log is the explanation",
			config: Config{APIServerArgs: []string{"--no-such-flag"}},
			want:   "unknown flag: --no-such-flag",
		},
		"program that is missing": {
			reason: "clusters need to be built first",
			config: Config{BinDir: empty},
			want:   "etcd among them: build them with `make prerequisites`",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := lookAtMachine(t)
			tc.config.Name = "refused"
			c, err := Start(t.Context(), tc.config)
			if err == nil {
				t.Fatal("started", c.Stop())
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error: got %v, want it to contain %q", err, tc.want)
			}
			expectGone(t, "refused", before)
		})
	}
}

// TestStartCancelled gives a start up at various moments, as Ctrl-C does.
func TestStartCancelled(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			before := lookAtMachine(t)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			c, err := Start(ctx, Config{Name: "cancelled", Nodes: Nodes(2), CSI: true})
			if err == nil {
				t.Fatal("ready before it was given up", c.Stop())
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error: got %v, want %v", err, context.DeadlineExceeded)
			}
			expectGone(t, "cancelled", before)
		})
	}
}

// TestBesides shows that clusters do not disturb each other.
func TestBesides(t *testing.T) {
	one := startForTest(t, Config{Nodes: Nodes(1)})
	two := startForTest(t, Config{Nodes: Nodes(1)})
	for _, c := range []*Cluster{one, two} {
		client := kubernetes.NewForConfigOrDie(c.RESTConfig())
		got := runPod(t, client, busybox("hello", "", "echo Hello from "+c.Name))
		if want := "Hello from " + c.Name + "\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, err := Start(t.Context(), Config{Name: two.Name}); !errors.Is(err, lifecycle.ErrRunning) {
		t.Errorf("a second cluster of the same name: got %v, want %v", err, lifecycle.ErrRunning)
	}
	if err := one.Stop(); err != nil {
		t.Error(err)
	}
	client := kubernetes.NewForConfigOrDie(two.RESTConfig())
	if got, want := runPod(t, client, busybox("still", "", "echo still here")), "still here\n"; got != want {
		t.Errorf("after the first has ended: got %q, want %q", got, want)
	}
}
