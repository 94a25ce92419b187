package disk

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func requireLoop(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	if _, err := os.Stat(loopControl); err != nil {
		t.Skip("needs loop devices")
	}
}

func image(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := Create(path, 16<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Release(dir); err != nil {
			t.Error(err)
		}
	})
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what the kernel does in its own time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not in 5 s: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func attached(t *testing.T, img string) bool {
	t.Helper()
	_, ok, err := Find(img)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestDeviceGoesWithItsMount(t *testing.T) {
	requireLoop(t)
	img := image(t, "vol-autoclear.img")
	at := t.TempDir()
	d, err := Attach(img, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := Format(t.Context(), d.Loop, Ext4); err != nil {
		t.Fatal(err)
	}
	if err := Mount(d.Loop, at, Ext4, nil); err != nil {
		t.Fatal(err)
	}
	again, err := Attach(img, true)
	if err != nil || again.Path != d.Path {
		t.Fatalf("want an image to have one device: %v, %v", again, err)
	}
	for _, d := range []*Device{again, d} {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !attached(t, img) {
		t.Fatal("want the device to stay while it is mounted")
	}
	if kind, err := Probe(img); err != nil || kind != Ext4 {
		t.Errorf("want ext4, got %q, %v", kind, err)
	}
	for range 2 {
		if err := Unmount(at); err != nil {
			t.Fatalf("unmount may be repeated: %v", err)
		}
	}
	eventually(t, "the device goes with its mount", func() bool { return !attached(t, img) })
}

func TestDeviceStaysUntilDetached(t *testing.T) {
	requireLoop(t)
	img := image(t, "vol-block.img")
	d, err := Attach(img, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if !attached(t, img) {
		t.Fatal("want the device to stay though nobody has it open")
	}
	for range 2 {
		if err := Detach(img); err != nil {
			t.Fatalf("detach may be repeated: %v", err)
		}
	}
	eventually(t, "the device is freed", func() bool { return !attached(t, img) })
}

// TestReleaseAfterCrash leaves everything that a killed cluster leaves: mounts,
// a bound device node, a device on the device as the kubelet makes, and an image
// that is gone.
func TestReleaseAfterCrash(t *testing.T) {
	requireLoop(t)
	img := image(t, "vol-left.img")
	dir := filepath.Dir(img)
	block := filepath.Join(dir, "gone.img")
	must(t, Create(block, 1<<20))
	d, err := Attach(img, true)
	must(t, err)
	must(t, Format(t.Context(), d.Loop, Ext4))
	at, pod := t.TempDir(), t.TempDir()
	must(t, Mount(d.Loop, at, Ext4, []string{"noatime"}))
	must(t, Bind(at, pod, true))
	raw, err := Attach(block, false)
	must(t, err)
	node := filepath.Join(t.TempDir(), "pods", "device")
	must(t, MakeFile(node))
	must(t, Bind(raw.Path, node, false))
	if binds, err := BindsOf(raw.Loop); err != nil || len(binds) != 1 || binds[0].Path != node {
		t.Errorf("want the device bound to %q alone, got %v, %v", node, binds, err)
	}
	above, err := Attach(node, false)
	must(t, err)
	for _, d := range []*Device{d, raw, above} {
		must(t, d.Close())
	}
	must(t, os.Remove(block))

	must(t, Release(dir))
	for _, path := range []string{at, pod, node} {
		if _, mounted, err := MountedAt(path); err != nil || mounted {
			t.Errorf("%q: want unmounted, got %t, %v", path, mounted, err)
		}
	}
	eventually(t, "no device is left", func() bool {
		loops, err := Loops()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range loops {
			if l.under(dir) || l.Backing == node {
				return false
			}
		}
		return true
	})
	if err := Release(filepath.Join(dir, "never-there")); err != nil {
		t.Errorf("want nothing to release where nothing is, got %v", err)
	}
}

func TestConsistentReadsAgain(t *testing.T) {
	requireLoop(t)
	img := image(t, "vol-busy.img")
	d, err := Attach(img, false)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	device, err := os.OpenFile(d.Path, os.O_WRONLY|unix.O_SYNC, 0)
	must(t, err)
	defer func() { must(t, device.Close()) }()
	disturb := func() {
		_, err := device.WriteAt(make([]byte, 4096), 0)
		must(t, err)
	}

	reads := 0
	err = Consistent(t.Context(), img, func() error {
		if reads++; reads <= 2 {
			disturb()
		}
		return nil
	})
	if err != nil || reads != 3 {
		t.Errorf("want the third, undisturbed read, got %d, %v", reads, err)
	}
	err = Consistent(t.Context(), img, func() error { disturb(); return nil })
	if !errors.Is(err, ErrWrittenTo) {
		t.Errorf("want ErrWrittenTo for a disk that is never quiet, got %v", err)
	}
}

// TestFlushReachesOtherNamespaces has a program mount the file system where this
// process does not see it, as a node's is for the controller.
func TestFlushReachesOtherNamespaces(t *testing.T) {
	requireLoop(t)
	img := image(t, "vol-hidden.img")
	d, err := Attach(img, true)
	must(t, err)
	must(t, Format(t.Context(), d.Loop, Ext4))
	at := t.TempDir()
	const script = `mount "$0" "$1" && printf hidden > "$1/file" && echo written && read -r _`
	hidden := exec.CommandContext(t.Context(), "sh", "-c", script, d.Path, at)
	hidden.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	stop, err := hidden.StdinPipe()
	must(t, err)
	out, err := hidden.StdoutPipe()
	must(t, err)
	must(t, hidden.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "written\n" {
		t.Fatalf("want the file written, got %q, %v", line, err)
	}
	if _, mounted, err := MountedAt(at); err != nil || mounted {
		t.Fatalf("want the mount hidden from here, got %t, %v", mounted, err)
	}
	must(t, d.Close())

	copied := filepath.Join(filepath.Dir(img), "vol-copy.img")
	must(t, Consistent(t.Context(), img, func() error { return Copy(t.Context(), img, copied, 16<<20) }))
	c, err := Attach(copied, true)
	must(t, err)
	must(t, Mount(c.Loop, at, Ext4, nil))
	must(t, c.Close())
	got, err := os.ReadFile(filepath.Join(at, "file"))
	if err != nil || string(got) != "hidden" {
		t.Errorf("want what was written before the copy, got %q, %v", got, err)
	}
	must(t, Unmount(at))
	must(t, stop.Close())
	_ = hidden.Wait() // read fails at the end of its input
}
