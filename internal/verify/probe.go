package verify

import (
	"bytes"
	"sync"

	"github.com/tech-renaissance/trbench/eager"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/workloads"
)

// watch remembers which sub-graphs changed bytes of their declared output. It
// is shared by the ranks' threads.
type watch struct {
	mu      sync.Mutex
	changed [workloads.NumSubGraphs]bool
}

func (w *watch) seen(id workloads.SubGraph) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed[id]
}

func (w *watch) mark(id workloads.SubGraph) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[id] = true
}

// probe is a launcher that drains the rank before and after each sub-graph of
// an eager step and compares the sub-graph's declared output. It belongs to
// the rank's thread.
type probe struct {
	inner eager.Launcher
	rank  device.Rank
	w     *workloads.Workload
	watch *watch
	done  [workloads.NumSubGraphs]bool // this rank need not look again
}

// Launch submits the sub-graph between two looks at its output, until it has
// seen it change. Each rank decides for itself: a rank that looks waits for a
// collective only once it has submitted it, and so do the others, looking or
// not.
func (p *probe) Launch(id workloads.SubGraph, v workloads.Variant, c *walk.Counts) error {
	if p.done[id] {
		return p.inner.Launch(id, v, c)
	}
	if err := p.rank.SyncAll(); err != nil {
		return err
	}
	before, err := p.outputs(id, v)
	if err != nil {
		return err
	}
	if err := p.inner.Launch(id, v, c); err != nil {
		return err
	}
	if err := p.rank.SyncAll(); err != nil {
		return err
	}
	after, err := p.outputs(id, v)
	if err != nil {
		return err
	}
	for i := range before {
		if !bytes.Equal(before[i], after[i]) {
			p.done[id] = true
			p.watch.mark(id)
			break
		}
	}
	return nil
}

// outputs copies what the sub-graph's nodes declare as their output, scratch
// left out.
func (p *probe) outputs(id workloads.SubGraph, v workloads.Variant) ([][]byte, error) {
	var out [][]byte
	seen := map[workloads.Region]bool{}
	for _, b := range p.w.Bounds(id, v, workloads.ControlDevice) {
		for _, o := range b.Out {
			if seen[o.Region] {
				continue
			}
			seen[o.Region] = true
			data := make([]byte, o.Region.Bytes)
			if err := p.rank.Read(o.Region, data); err != nil {
				return nil, err
			}
			out = append(out, data)
		}
	}
	return out, nil
}
