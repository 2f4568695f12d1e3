package worker

import (
	"fmt"
	"time"

	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// slowed burns host time before one sub-graph is submitted, inside the clock of
// submitting. Mode step has no submission of a sub-graph to slow.
type slowed struct {
	walk.Launcher
	id workloads.SubGraph
	by time.Duration
}

func slow(l walk.Launcher, in results.Injection) (walk.Launcher, error) {
	for id := range workloads.NumSubGraphs {
		if id.String() == in.SubGraph && in.Ns > 0 {
			return &slowed{l, id, time.Duration(in.Ns)}, nil
		}
	}
	return nil, fmt.Errorf("inject %d ns into %q: it takes a sub-graph and a time above 0", in.Ns, in.SubGraph)
}

// Launch is busy waiting, as a dispatcher's work would be: a sleep of less than
// a microsecond takes many.
func (s *slowed) Launch(id workloads.SubGraph, v workloads.Variant, c *walk.Counts) error {
	if id == s.id {
		for begin := time.Now(); time.Since(begin) < s.by; {
		}
	}
	return s.Launcher.Launch(id, v, c)
}
