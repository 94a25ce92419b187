package node

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/sandbox"
)

// wanted are the kernel's settings that a kubelet insists on and would write.
// They are the whole machine's, so the node is shown files that say they are
// set already.
var wanted = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// masks holds the files that the node is shown in place of kernel settings.
func (n *Node) masks() string { return filepath.Join(n.dir(), "sysctl") }

func (n *Node) writeMasks() error {
	for name, value := range wanted {
		if err := config.WriteFile(filepath.Join(n.masks(), name), []byte(value+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mask puts the files in the place of the settings, in the node's mount
// namespace only. Containers have a /proc of their own.
func (n *Node) mask() error {
	for name := range wanted {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); err != nil {
			continue // this kernel has no such setting
		}
		if err := sandbox.BindFile(filepath.Join(n.masks(), name), target); err != nil {
			return err
		}
	}
	return nil
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	return nil
}

// bridgedPacketsAreFiltered says whether the kernel has br_netfilter.
func bridgedPacketsAreFiltered() bool {
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	return err == nil
}

func onOverlay(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}
