package cuda

import (
	"fmt"
	"testing"

	"github.com/tech-renaissance/trbench/workloads"
)

// Unfilled leaves the arena to a tool that tells reads of memory nobody wrote;
// what the kernels count with is zero all the same.
func TestUnfilled(t *testing.T) {
	for unfilled, fills := range map[bool]int{false: 2, true: 1} {
		t.Run(fmt.Sprint(unfilled), func(t *testing.T) {
			x := fakeRig(t, nil)
			d, err := New(Options{Driver: x.api, Unfilled: unfilled})
			must(t, err)
			g, err := d.Open(&workloads.Workload{Spec: workloads.Spec{Ranks: 1}, ArenaBytes: benchArena, PinnedBytes: benchPinned})
			must(t, err)
			if n := x.m.Calls("cuMemsetD8_v2"); n != fills {
				t.Errorf("%d fills, want %d", n, fills)
			}
			must(t, g.Close())
		})
	}
}
