package report

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/results"
)

// preparation is what preparing the graphs took, a line a phase, and the memory
// in use around it where the device said so.
func (s sources) preparation() Section {
	g, keys := s.keys()
	g.Header = append(g.Header, "phase")
	g.Left = len(g.Header)
	g.Header = append(g.Header, "took", "processes")
	known := false
	for cell := range s.cells {
		for _, c := range cell.Configurations {
			known = known || captured(c.Key) && MemoryTold(c.Prepare)
		}
	}
	if known {
		g.Header = append(g.Header, MemoryHeader()...)
	}
	for cell, src := range s.cells {
		for i := range cell.Configurations {
			c := &cell.Configurations[i]
			if !captured(c.Key) {
				continue // all that it has is what the others have as well
			}
			for _, p := range c.Prepare {
				line := append(keys(src, cell, c), strings.ReplaceAll(plain(p.Phase), "_", " "), Duration(float64(p.Ns)), strconv.Itoa(max(len(p.Processes), 1)))
				if known {
					line = append(line, MemoryCells(p)...)
				}
				g.Rows = append(g.Rows, line)
			}
		}
	}
	lines := []string{"Host time until all ranks were done, the median over processes. What configurations share, the operators and graphs that differ in joins alone, stands in each."}
	if known {
		lines = append(lines, MemoryLine)
	}
	return Section{"Preparing the graphs", g, lines}
}

// MemoryLine explains what [MemoryCells] shows.
const MemoryLine = "In use: bytes of rank 0's device, by whoever uses it, right before and right after the phase; of several processes the one with the median difference."

// MemoryTold says that the device told of its memory around some phase.
func MemoryTold(phases []results.Phase) bool {
	return slices.ContainsFunc(phases, func(p results.Phase) bool { return len(p.Memory) > 0 })
}

// MemoryHeader names what [MemoryCells] shows.
func MemoryHeader() []string { return []string{"in use before", "after", "more"} }

// MemoryCells are the memory in use before and after a phase and the difference,
// as tables show them: of the process whose difference is the median, the lower
// one of two; "-" where nobody said.
func MemoryCells(p results.Phase) []string {
	if len(p.Memory) == 0 {
		return []string{"-", "-", "-"}
	}
	more := func(m results.PhaseMemory) int64 { return m.AfterBytes - m.BeforeBytes }
	sorted := slices.SortedStableFunc(slices.Values(p.Memory), func(a, b results.PhaseMemory) int { return cmp.Compare(more(a), more(b)) })
	m := sorted[(len(sorted)-1)/2]
	difference := Bytes(max(more(m), -more(m)))
	if more(m) < 0 {
		difference = "-" + difference
	}
	return []string{Bytes(m.BeforeBytes), Bytes(m.AfterBytes), difference}
}

// graphs are what the captured steps of each configuration consist of.
func (s sources) graphs() Section {
	g, keys := s.keys()
	var all []results.CapturedGraph
	for cell := range s.cells {
		for _, c := range cell.Configurations {
			all = append(all, c.Counts.Graphs...)
		}
	}
	kinds := NodeKinds(all...)
	g.Left = len(g.Header)
	g.Header = slices.Concat(g.Header, []string{"graphs"}, GraphHeader(kinds))
	for cell, src := range s.cells {
		for i := range cell.Configurations {
			c := &cell.Configurations[i]
			if len(c.Counts.Graphs) == 0 {
				continue
			}
			g.Rows = append(g.Rows, slices.Concat(keys(src, cell, c), []string{strconv.Itoa(len(c.Counts.Graphs))}, GraphCells(kinds, c.Counts.Graphs...)))
		}
	}
	return Section{"What a captured step consists of", g, []string{
		"Of one rank and step; nodes by kind. Widest section: the most nodes of a graph of which no path orders any two, so many may run at once; critical path: nodes of the longest chain. " +
			"Of several graphs these are the largest of any; what orders graphs among each other are the joins of the schedule."}}
}

// NodeKinds are the kinds of nodes in graphs, in the order of the alphabet.
func NodeKinds(graphs ...results.CapturedGraph) []string {
	kinds := map[string]bool{}
	for _, g := range graphs {
		for kind := range g.Nodes {
			kinds[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// GraphHeader names what [GraphCells] shows.
func GraphHeader(kinds []string) []string {
	header := []string{"nodes"}
	for _, kind := range kinds {
		header = append(header, plain(kind))
	}
	return append(header, "edges", "widest section", "critical path")
}

// GraphCells are the nodes, the nodes of each kind and the edges of graphs
// together, then the widest section and the critical path of the one where they
// are largest.
func GraphCells(kinds []string, graphs ...results.CapturedGraph) []string {
	var nodes, edges int64
	by := map[string]int64{}
	widest, critical := 0, 0
	for _, g := range graphs {
		nodes, edges = nodes+g.Total(), edges+int64(g.Edges)
		for kind, n := range g.Nodes {
			by[kind] += n
		}
		widest, critical = max(widest, g.WidestSection), max(critical, g.CriticalPath)
	}
	out := []string{strconv.FormatInt(nodes, 10)}
	for _, kind := range kinds {
		out = append(out, strconv.FormatInt(by[kind], 10))
	}
	return append(out, strconv.FormatInt(edges, 10), strconv.Itoa(widest), strconv.Itoa(critical))
}
