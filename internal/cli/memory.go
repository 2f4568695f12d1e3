package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// checkMemory refuses cells whose arenas the device cannot hold. Go ends a
// program that asks for too much memory with a stack trace, or the system ends
// it with nothing, so this is found out before.
func checkMemory(cells []results.CellKey, d Device) error {
	if d.MemoryBytes <= 0 {
		return nil
	}
	for _, c := range cells {
		w, err := workloads.New(bench.Spec(c), d.Target)
		if err != nil {
			return fmt.Errorf("build workload %s: %w", c.Workload, err)
		}
		// Divided, not multiplied: the product might not fit 64 bits.
		if w.ArenaBytes+w.PinnedBytes > d.MemoryBytes/int64(c.GPUs) {
			return &bench.InputError{
				Name: "--batch",
				Reason: fmt.Sprintf("is too large: %s at batch %d needs %s on each of %d ranks, and device %s has %s free",
					c.Workload, c.Batch, report.Bytes(w.ArenaBytes+w.PinnedBytes), c.GPUs, d.Name, report.Bytes(d.MemoryBytes)),
				Hint: "use a smaller --batch, --resolution or --gpus",
			}
		}
	}
	return nil
}

// freeMemory is the host memory that can be had without swapping, in bytes; 0
// if the system does not say. A container's limit counts where it is lower.
func freeMemory(read func(name string) ([]byte, error)) int64 {
	free := int64(0)
	if b, err := read("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) >= 2 && f[0] == "MemAvailable:" {
				if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					free = kib << 10
				}
			}
		}
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := read(name); err == nil {
			limit, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			if err == nil && limit > 0 && (free == 0 || limit < free) {
				free = limit
			}
		}
	}
	return free
}

// hostMemory asks the machine this program runs on.
func hostMemory() int64 { return freeMemory(os.ReadFile) }
