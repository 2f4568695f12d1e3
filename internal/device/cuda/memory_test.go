package cuda

import (
	"strings"
	"testing"

	capturing "github.com/tech-renaissance/trbench/capture"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/workloads"
)

// Every phase of preparing says what memory was in use around it, asked of the
// driver while nothing is captured.
func TestMemoryOfPhases(t *testing.T) {
	x := newRig(t, nil)
	dev := x.device(Options{})
	w, err := workloads.New(tinySpec(), dev.Target())
	must(t, err)
	s := session(t, dev, w, worker.Options{Variants: []workloads.Variant{workloads.FinalFull}})
	for _, mode := range []string{"graph/event/device", "step/inside/device"} {
		if x.m != nil {
			x.m.Record(true)
		}
		e, err := s.Executor(key(mode))
		must(t, err)
		var asked, captures int
		if x.m != nil {
			inside := 0
			for _, line := range x.m.Log() {
				switch call, _, _ := strings.Cut(line, " "); call {
				case "cuStreamBeginCapture_v2":
					inside, captures = inside+1, captures+1
				case "cuStreamEndCapture":
					inside--
				case "cuMemGetInfo_v2":
					if asked++; inside != 0 {
						t.Errorf("%s: the memory was asked for within a capture", mode)
					}
				}
			}
			x.m.Record(false)
		}
		phases := e.Costs()
		for i, p := range phases {
			if len(p.Memory) != 1 || p.Memory[0].BeforeBytes < w.ArenaBytes || p.Memory[0].AfterBytes < w.ArenaBytes {
				t.Errorf("%s: phase %s has the memory %+v beside an arena of %d bytes", mode, p.Phase, p.Memory, w.ArenaBytes)
			}
			if x.m != nil && i > 0 && p.Phase != capturing.PhaseDeduplicate && p.Memory[0].BeforeBytes != phases[i-1].Memory[0].AfterBytes {
				t.Errorf("%s: phase %s begins with %d bytes, the one before ended with %d", mode, p.Phase, p.Memory[0].BeforeBytes, phases[i-1].Memory[0].AfterBytes)
			}
		}
		if want := 2 * (len(phases) - 1); x.m != nil && (asked != want || captures == 0) {
			t.Errorf("%s: the memory was asked for %d times, want %d; %d captures", mode, asked, want, captures)
		}
	}
}

// A phase in which memory goes says so. A GPU may have some put aside, or other
// users.
func TestMemoryIsOfTheDevice(t *testing.T) {
	x := fakeRig(t, nil).open()
	const n = 32 << 20
	m, err := capturing.MemoryAround(x.g, func() error {
		return x.r.Do(func() error {
			p, err := x.api.MemAlloc(n)
			t.Cleanup(func() { must(t, x.r.Do(func() error { return x.api.MemFree(p) })) })
			return err
		})
	})
	must(t, err)
	if m == nil || m.After-m.Before != n {
		t.Errorf("%d bytes were taken: %+v", n, m)
	}
}
