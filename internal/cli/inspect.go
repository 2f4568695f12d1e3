package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

type inspectOptions struct {
	env   *Env
	cells *cellFlags
	top   counts
	dot   string
	json  bool
	// capture: the graphs too, for which the device is used.
	capture bool
}

func newInspectCmd(env *Env) *cobra.Command {
	o := &inspectOptions{env: env, cells: newCellFlags(4), top: counts{values: []int{10}, min: 1, max: 1}}
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "show what a workload consists of: atlas, nodes, memory plan, graphs",
		Long: `inspect builds a workload without running it and shows the atlas (6 variants
by 33 sub-graphs: captured, reused or empty), the nodes of each sub-graph by
kind and operator, and the memory plan. On a GPU --tune changes which operators
there are, and what must be kept for how long.

With --capture the device also captures a step in the modes graph and step.
inspect then shows each graph's nodes by kind, its edges, its widest section
and its critical path, and what each phase of preparing took, in time and, on
a GPU, in memory.`,
		Example: `  trbench inspect --workload=resnet50 --json
  trbench inspect --workload=golden-tiny --capture
  trbench inspect --dot | dot -Tsvg > schedule.svg
  trbench inspect --dot=OPTIMIZER`,
		Args: noArgs,
	}
	f := cmd.Flags()
	o.cells.addPlace(f)
	o.cells.addKind(f)
	o.cells.addTune(f, untimedAuto)
	f.Var(&o.top, "top", "how many of the largest tensors to list")
	f.StringVar(&o.dot, "dot", "", "print Graphviz: the schedule of a training step, or the nodes of a SUB_GRAPH")
	f.Lookup("dot").NoOptDefVal = dotSchedule
	f.BoolVar(&o.capture, "capture", false, "capture a step on the device, and show its graphs and what preparing them took")
	f.BoolVar(&o.json, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w, cell, tuning, err := o.validate()
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), w, cell, tuning)
	}
	return cmd
}

// validate builds the one workload that the flags name, as the device runs it
// with the tuning, which is nil where the device has no choice.
func (o *inspectOptions) validate() (*workloads.Workload, results.CellKey, *results.TuningChoice, error) {
	none := results.CellKey{}
	if o.dot != "" && o.json {
		return nil, none, nil, &bench.InputError{Name: "--dot", Reason: "prints Graphviz, so it cannot be used with --json"}
	}
	if o.dot != "" && o.capture {
		return nil, none, nil, &bench.InputError{Name: "--dot", Reason: "shows what is submitted, so it cannot be used with --capture"}
	}
	for name, n := range map[string]int{
		"--workload": len(o.cells.workload.values), "--batch": len(o.cells.batch.values), "--gpus": len(o.cells.gpus.values),
		"--precision": len(o.cells.precision.values), "--optimizer": len(o.cells.optimizer.values),
	} {
		if n > 1 {
			return nil, none, nil, &bench.InputError{Name: name, Reason: fmt.Sprintf("takes one value here, not %d: inspect shows one workload", n)}
		}
	}
	device, err := o.env.chooseDevice(o.cells.device.String())
	if err != nil {
		return nil, none, nil, err
	}
	cells, err := o.cells.cells(device)
	if err != nil {
		return nil, none, nil, err
	}
	plan := bench.Plan{Cells: cells, Configurations: []results.ConfigurationKey{{}}, Steps: 1}
	if err := plan.Validate(bench.Limits{Device: device.Name, MaxRanks: device.MaxRanks}); err != nil {
		return nil, none, nil, err
	}
	if o.capture {
		if err := checkMemory(cells, device); err != nil {
			return nil, none, nil, err
		}
	}
	tune, err := o.cells.untimedTuning(o.env, device)
	if err != nil {
		return nil, none, nil, err
	}
	target, tuning := device.Target, (*results.TuningChoice)(nil)
	if o.env.Engine.Tuned != nil && tune != "" {
		if target, tuning, err = o.env.Engine.Tuned(cells[0], tune); err != nil {
			return nil, none, nil, fmt.Errorf("tune %s: %w", cells[0].Name(), err)
		}
	}
	w, err := workloads.New(bench.Spec(cells[0]), target)
	if err != nil {
		return nil, none, nil, fmt.Errorf("build workload %s: %w", cells[0].Workload, err)
	}
	return w, cells[0], tuning, nil
}

func (o *inspectOptions) run(ctx context.Context, w *workloads.Workload, cell results.CellKey, tuning *results.TuningChoice) error {
	if o.dot != "" {
		return writeDot(o.env.Stdout, w, o.dot)
	}
	r := inspect(w, cell, o.top.first())
	r.Tuning = tuning
	if o.capture {
		captured, err := o.env.Engine.Captured(ctx, cell, capturedWays(cell))
		if err != nil {
			return fmt.Errorf("capture %s: %w", cell.Name(), err)
		}
		for _, c := range captured {
			r.Captured = append(r.Captured, inspectCaptured{c.Key.Mode, c.Counts.Graphs, c.Prepare})
		}
	}
	if o.json {
		return printJSON(o.env.Stdout, r)
	}
	return r.print(o.env)
}

// inspectReport is what inspect shows, and its JSON. Sizes are for one rank.
type inspectReport struct {
	Cell results.CellKey `json:"cell"`
	// Tuning is how the device runs the nodes; null where it has no choice.
	Tuning    *results.TuningChoice `json:"tuning"`
	Atlas     results.Atlas         `json:"atlas"`
	Slots     []inspectSlot         `json:"slots"`
	SubGraphs []inspectSubGraph     `json:"sub_graphs"`
	Memory    inspectMemory         `json:"memory"`
	// Captured is what --capture adds, by mode.
	Captured []inspectCaptured `json:"captured,omitempty"`
}

// inspectCaptured is a step of the cell's variant as a mode captured it: its
// graphs, in the order they are launched, and the phases of preparing them.
type inspectCaptured struct {
	Mode    string                  `json:"mode"`
	Graphs  []results.CapturedGraph `json:"graphs"`
	Prepare []results.Phase         `json:"prepare"`
}

// capturedWays are the configurations whose graphs are shown: how graphs are
// joined is no part of them.
func capturedWays(cell results.CellKey) []results.ConfigurationKey {
	graph := results.DefaultConfigurationKey()
	if cell.Device == "cpu" {
		graph.Launcher = "go"
	}
	graph.Mode = "graph"
	step := graph
	step.Mode, step.Sync = "step", "inside"
	return []results.ConfigurationKey{graph, step}
}

type inspectSlot struct {
	SubGraph string `json:"sub_graph"`
	Variant  int    `json:"variant"`
	Filled   bool   `json:"filled"`
	Captured bool   `json:"captured"`
	Owner    int    `json:"owner"` // the variant whose capture is used
	Shape    string `json:"shape"`
	Why      string `json:"why,omitempty"` // the unmet condition of an empty slot
}

// inspectSubGraph counts the nodes of the first filled slot; all filled slots
// of a sub-graph have the same nodes.
type inspectSubGraph struct {
	ID     int            `json:"id"`
	Name   string         `json:"name"`
	Stream string         `json:"stream"`
	Nodes  int            `json:"nodes"`
	ByKind map[string]int `json:"by_kind"` // compute, range, collective
	ByOp   map[string]int `json:"by_op"`
}

type inspectMemory struct {
	ArenaBytes  int64            `json:"arena_bytes"`
	PinnedBytes int64            `json:"pinned_bytes"`
	ByRole      map[string]int64 `json:"bytes_by_role"`
	// Activations with reuse of bytes, without, and the most alive at once.
	ActivationBytes        int64           `json:"activation_bytes"`
	ActivationNoReuseBytes int64           `json:"activation_no_reuse_bytes"`
	ActivationPeakBytes    int64           `json:"activation_peak_bytes"`
	ScratchBytes           int64           `json:"scratch_bytes"`
	Largest                []inspectTensor `json:"largest"`
}

type inspectTensor struct {
	Name   string `json:"name"`
	Role   string `json:"role"`
	DType  string `json:"dtype"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

func inspect(w *workloads.Workload, cell results.CellKey, top int) inspectReport {
	r := inspectReport{Cell: cell}
	r.Atlas.Filled, r.Atlas.Captured, r.Atlas.Reused = w.Totals()
	for g := range workloads.NumSubGraphs {
		r.SubGraphs = append(r.SubGraphs, inspectNodes(w, g))
		for v := range workloads.NumVariants {
			s := w.Slot(g, v)
			r.Slots = append(r.Slots, inspectSlot{g.String(), int(v), s.Filled, s.Captured(), int(s.Owner), s.Shape, s.Why})
		}
	}
	r.Memory = memoryOf(w, top)
	return r
}

func inspectNodes(w *workloads.Workload, g workloads.SubGraph) inspectSubGraph {
	s := inspectSubGraph{
		ID: int(g), Name: g.String(), Stream: g.Info().Stream.String(),
		ByKind: map[string]int{}, ByOp: map[string]int{},
	}
	for v := range workloads.NumVariants {
		bounds := w.Bounds(g, v, workloads.ControlDevice)
		if len(bounds) == 0 {
			continue
		}
		for _, b := range bounds {
			s.Nodes++
			s.ByOp[b.Op.String()]++
			s.ByKind[kind(b.Node)]++
		}
		break
	}
	return s
}

func kind(n *workloads.Node) string {
	switch {
	case n.Collective:
		return "collective"
	case n.Range:
		return "range"
	}
	return "compute"
}

func memoryOf(w *workloads.Workload, top int) inspectMemory {
	plan := w.Memory()
	m := inspectMemory{
		ArenaBytes: w.ArenaBytes, PinnedBytes: w.PinnedBytes, ByRole: map[string]int64{},
		ActivationBytes: plan.Activations, ActivationNoReuseBytes: plan.NoReuse, ActivationPeakBytes: plan.Peak,
		ScratchBytes: plan.Scratch,
	}
	for role, n := range plan.ByRole {
		m.ByRole[role.String()] = n
	}
	m.ByRole[workloads.RoleActivation.String()] = plan.Activations
	ids := w.Bases(workloads.RoleState, workloads.RoleInput, workloads.RoleStep, workloads.RoleActivation)
	slices.SortFunc(ids, func(a, b workloads.TensorID) int {
		return cmp.Or(cmp.Compare(w.Tensors[b].Region.Bytes, w.Tensors[a].Region.Bytes), cmp.Compare(a, b))
	})
	for _, id := range ids[:min(top, len(ids))] {
		t := w.Tensor(id)
		m.Largest = append(m.Largest, inspectTensor{t.Name, t.Role.String(), t.DType.String(), t.Region.Off, t.Region.Bytes})
	}
	return m
}

func (r inspectReport) print(env *Env) error {
	out := &printer{w: env.Stdout}
	c := r.Cell
	out.linef("%s, batch %d, gpus %d, %s, %s, device %s\n", c.Workload, c.Batch, c.GPUs, c.Precision, c.Optimizer, c.Device)
	if t := r.Tuning; t != nil {
		out.linef("Tuning: %s (%s)\n", t.Words, cmp.Or(t.Rule, t.Source))
	}
	out.linef("Atlas: %d slots filled = %d captured + %d reused", r.Atlas.Filled, r.Atlas.Captured, r.Atlas.Reused)
	out.linef("(new: captured; =N: reuses the capture of variant N; -: empty)")
	out.grid(r.atlas())
	out.linef("\nNodes")
	out.grid(r.nodes())
	out.linef("\nMemory of a rank")
	out.grid(r.memory())
	out.linef("\nLargest tensors")
	out.grid(r.largest())
	if len(r.Captured) > 0 {
		out.linef("\nGraphs of a step of variant %d, of a rank", c.Variant)
		out.grid(r.graphs())
		out.linef("Widest section: the most nodes of which no path orders any two. Critical path: nodes of the longest chain.")
		out.linef("\nPreparing the graphs")
		g, known := r.preparing()
		out.grid(g)
		if known {
			out.linef(report.MemoryLine)
		}
	}
	return out.err
}

func (r inspectReport) atlas() report.Grid {
	g := report.Grid{Header: []string{"id", "sub-graph", "stream"}, Left: 10}
	for v := range workloads.NumVariants {
		g.Header = append(g.Header, fmt.Sprintf("%d %s", v, v))
	}
	g.Header = append(g.Header, "empty because")
	for i, s := range r.SubGraphs {
		row := []string{strconv.Itoa(s.ID), s.Name, s.Stream}
		why := ""
		for _, slot := range r.Slots[i*int(workloads.NumVariants):][:workloads.NumVariants] {
			row = append(row, slot.word())
			if why == "" && !slot.Filled {
				why = slot.Why
			}
		}
		g.Rows = append(g.Rows, append(row, why))
	}
	return g
}

func (s inspectSlot) word() string {
	switch {
	case s.Captured:
		return "new"
	case s.Filled:
		return "=" + strconv.Itoa(s.Owner)
	}
	return "-"
}

func (r inspectReport) nodes() report.Grid {
	g := report.Grid{Header: []string{"sub-graph", "nodes", "compute", "range", "collective", "operators"}, Left: 1, LeftEnd: 1}
	for _, s := range r.SubGraphs {
		if s.Nodes == 0 {
			continue
		}
		ops := ""
		for _, name := range slices.Sorted(maps.Keys(s.ByOp)) {
			ops += fmt.Sprintf("%s x%d ", name, s.ByOp[name])
		}
		row := []string{s.Name, strconv.Itoa(s.Nodes)}
		for _, k := range g.Header[2:5] {
			row = append(row, strconv.Itoa(s.ByKind[k]))
		}
		g.Rows = append(g.Rows, append(row, ops))
	}
	return g
}

func (r inspectReport) memory() report.Grid {
	m := r.Memory
	g := report.Grid{Header: []string{"part", "size", "bytes"}, Left: 1}
	add := func(name string, n int64) {
		g.Rows = append(g.Rows, []string{name, report.Bytes(n), strconv.FormatInt(n, 10)})
	}
	for _, role := range slices.Sorted(maps.Keys(m.ByRole)) {
		if role != workloads.RoleHost.String() {
			add(role, m.ByRole[role])
		}
	}
	add("scratch", m.ScratchBytes)
	add("arena", m.ArenaBytes)
	add("pinned host memory", m.PinnedBytes)
	add("activations, no reuse", m.ActivationNoReuseBytes)
	add("activations, most alive at once", m.ActivationPeakBytes)
	return g
}

// graphs are a line a graph.
func (r inspectReport) graphs() report.Grid {
	var all []results.CapturedGraph
	for _, c := range r.Captured {
		all = append(all, c.Graphs...)
	}
	kinds := report.NodeKinds(all...)
	g := report.Grid{Header: append([]string{"mode", "graph"}, report.GraphHeader(kinds)...), Left: 2}
	for _, c := range r.Captured {
		for _, graph := range c.Graphs {
			g.Rows = append(g.Rows, append([]string{c.Mode, graph.Name}, report.GraphCells(kinds, graph)...))
		}
	}
	return g
}

// preparing is a line a phase; known says that the device told its memory.
func (r inspectReport) preparing() (g report.Grid, known bool) {
	for _, c := range r.Captured {
		known = known || report.MemoryTold(c.Prepare)
	}
	g = report.Grid{Header: []string{"mode", "phase", "took"}, Left: 2}
	if known {
		g.Header = append(g.Header, report.MemoryHeader()...)
	}
	for _, c := range r.Captured {
		for _, p := range c.Prepare {
			line := []string{c.Mode, strings.ReplaceAll(p.Phase, "_", " "), report.Duration(float64(p.Ns))}
			if known {
				line = append(line, report.MemoryCells(p)...)
			}
			g.Rows = append(g.Rows, line)
		}
	}
	return g, known
}

func (r inspectReport) largest() report.Grid {
	g := report.Grid{Header: []string{"tensor", "role", "type", "size", "offset"}, Left: 3}
	for _, t := range r.Memory.Largest {
		g.Rows = append(g.Rows, []string{t.Name, t.Role, t.DType, report.Bytes(t.Bytes), strconv.FormatInt(t.Offset, 10)})
	}
	return g
}
