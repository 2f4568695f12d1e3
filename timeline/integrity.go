package timeline

import (
	"slices"
	"strings"
)

// Integrity is how far a device's part of a recording can be trusted; it goes
// beside every figure.
type Integrity struct {
	// Ops are all on record. Untimed ones have no or impossible times and stand
	// in no other figure; the counts below are of the others.
	Ops, Untimed int
	Linked       int
	// Unlinked ops start before the recording's first API call, or later.
	UnlinkedBefore, UnlinkedInside int
	ZeroOps                        int
	// Overlaps are ops that start before an earlier one on their stream has
	// ended, OverlapNs for how long: a stream runs one after another, but for
	// dependent launches, and rounded times.
	Overlaps  int
	OverlapNs int64
	// Duplicates agree in all with another op.
	Duplicates int
	// Early ops start before their launching call.
	Early int
	// Envelopes hide what ran inside a graph.
	Envelopes int
	// Launches are calls that launched ops here, MaxOpsPerLaunch the most one
	// did.
	Launches, MaxOpsPerLaunch int
}

// Unlinked is how many timed ops have no launch on record.
func (g Integrity) Unlinked() int { return g.UnlinkedBefore + g.UnlinkedInside }

// Bad is how many ops are unlinked or untimed.
func (g Integrity) Bad() int { return g.Unlinked() + g.Untimed }

// Integrity looks through a device's ops.
func (x *Index) Integrity(device int32) Integrity {
	t := x.T
	var g Integrity
	for i := range t.Ops {
		if o := &t.Ops[i]; o.Device == device {
			g.Ops++
			if !usable(o) {
				g.Untimed++
			}
		}
	}
	perCall := make([]int, len(t.Calls))
	alike := map[Op]bool{}
	l := &x.devices[device]
	for i, op := range l.ops {
		o := &t.Ops[op]
		if o.EndNs == o.StartNs {
			g.ZeroOps++
		}
		if o.Kind == Envelope {
			g.Envelopes++
		}
		switch c := x.Launch[op]; {
		case c != None:
			g.Linked++
			perCall[c]++
			if o.StartNs < t.Calls[c].StartNs {
				g.Early++
			}
		case o.StartNs < x.firstCallNs:
			g.UnlinkedBefore++
		default:
			g.UnlinkedInside++
		}
		// What agrees in all agrees in its times, so it stands next to it.
		if i > 0 && t.Ops[l.ops[i-1]].StartNs == o.StartNs && t.Ops[l.ops[i-1]].EndNs == o.EndNs {
			if len(alike) == 0 {
				alike[t.Ops[l.ops[i-1]]] = true
			}
			if alike[*o] {
				g.Duplicates++
			}
			alike[*o] = true
		} else {
			clear(alike)
		}
	}
	for _, n := range perCall {
		if n > 0 {
			g.Launches++
		}
		g.MaxOpsPerLaunch = max(g.MaxOpsPerLaunch, n)
	}
	for s := range t.Streams {
		if t.Streams[s].Device == device {
			g.overlaps(t, x.streams[s].ops)
		}
	}
	return g
}

func (g *Integrity) overlaps(t *Timeline, ops []int32) {
	if len(ops) == 0 {
		return
	}
	// The greatest end so far, not the previous op's: a long op may hold several.
	end := t.Ops[ops[0]].EndNs
	for _, op := range ops[1:] {
		o := &t.Ops[op]
		if o.StartNs < end {
			if n := min(end, o.EndNs) - o.StartNs; n > 0 {
				g.Overlaps++
				g.OverlapNs += n
			}
		}
		end = max(end, o.EndNs)
	}
}

// Classify says what an API call is for, from its name in any recording: CUDA's
// driver and runtime and HIP, with or without a version's suffix.
func Classify(name string) CallClass {
	n := strings.ToLower(CleanAPIName(name))
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(n, w) })
	}
	switch {
	case has("graphlaunch"):
		return CallGraphLaunch
	case has("callbacks", "hostfunc"):
		return CallOther
	case has("launch"):
		return CallLaunch
	case has("synchronize"):
		return CallSync
	case has("graph", "memcpynodes"):
		return CallOther // building a graph copies nothing yet
	case has("memcpy", "memset"):
		return CallCopy
	}
	return CallOther
}

// CleanAPIName drops what a profiler leaves behind an API call's name: a
// version (_v7000), a default-stream mark (_ptsz, _ptds).
func CleanAPIName(name string) string {
	for {
		i := strings.LastIndexByte(name, '_')
		if i <= 0 {
			return name
		}
		s := name[i+1:]
		version := len(s) > 1 && s[0] == 'v' && strings.Trim(s[1:], "0123456789") == ""
		if !version && s != "ptsz" && s != "ptds" {
			return name
		}
		name = name[:i]
	}
}
