package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clockTick is what the kernel counts processor time in (USER_HZ).
const clockTick = 100

// programs are those whose processor time explains a figure. The kernel keeps
// fifteen letters of a name.
var programs = []string{"sluice-manager", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kubelet", "containerd", "csi-provisioner"}

// processorTime is how many seconds of processor time each program has taken,
// and this process as "bench", which includes the simulated kubelets.
func processorTime() map[string]float64 {
	out := map[string]float64{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return out // the pattern is a constant
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if begin < 0 || end < begin {
			continue
		}
		fields := strings.Fields(string(stat[end+1:]))
		if len(fields) < 13 {
			continue
		}
		name := known(string(stat[begin+1:end]), file)
		user, _ := strconv.ParseFloat(fields[11], 64)   // numbers, by proc_pid_stat(5)
		system, _ := strconv.ParseFloat(fields[12], 64) // likewise
		if name != "" {
			out[name] += (user + system) / clockTick
		}
	}
	return out
}

func known(name, file string) string {
	if file == fmt.Sprintf("/proc/%d/stat", os.Getpid()) {
		return "bench"
	}
	for _, p := range programs {
		if name == p[:min(len(p), 15)] {
			return p
		}
	}
	return ""
}

// spent is the processor time since a reading, in tenths of a second.
func spent(before map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, now := range processorTime() {
		if s := now - before[name]; s >= 0.05 {
			out[name] = float64(int(s*10+0.5)) / 10
		}
	}
	return out
}
