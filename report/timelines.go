package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// tracedTimelines draws, for each cell whose timelines are beside its record, a
// step of each configuration and the lengths of gaps.
func (s sources) tracedTimelines() (pictures []Picture, absent []string) {
	rows := s.traced()
	for n := 0; n < len(rows); {
		first, last := n, n
		for last < len(rows) && rows[last].cell == rows[first].cell {
			last++
		}
		n = last
		ps, as := s.cellTimelines(rows[first:last])
		pictures, absent = append(pictures, ps...), append(absent, as...)
	}
	return pictures, absent
}

func (s sources) cellTimelines(rows []tracedRow) (pictures []Picture, absent []string) {
	cell, src := rows[0].cell, rows[0].src
	about := About{Subtitle: []string{s.place(src, cell)}}
	var steps []TracedStep
	var gaps []GapSet
	for _, r := range rows {
		if r.trace.File == "" {
			continue
		}
		label := plain(r.conf.Key.String())
		step, gap, err := readTraced(results.TraceFile(src.dir, r.trace.File), label, r.trace.Steps)
		if err != nil {
			absent = append(absent, fmt.Sprintf("The timeline of %s, %s, is not drawn: %s.", s.place(src, cell), label, plain(err.Error())))
			continue
		}
		if r.trace.Failed != "" {
			about.Doubts = append(about.Doubts, fmt.Sprintf("%s: the trace failed: %s.", label, plain(r.trace.Failed)))
		}
		if m := r.trace.Metric(results.Inflation); m != nil && finite(m.Value) {
			about.Notes = append(about.Notes, fmt.Sprintf("%s: recording made the step %s times as long.", label, digits(m.Value)))
		}
		steps, gaps = append(steps, step), append(gaps, gap)
	}
	if len(steps) == 0 {
		return nil, absent
	}
	suffix := fmt.Sprintf("_%s_b%d_g%d", wordOf(cell.Key.Workload), cell.Key.Batch, cell.Key.GPUs)
	for i := range src.record.Cells {
		if &src.record.Cells[i] == cell && len(src.record.Cells) > 1 {
			suffix += fmt.Sprintf("_c%d", i)
		}
	}
	if s.alike(src, cell) {
		suffix += "_" + wordOf(strings.TrimSuffix(strings.TrimSuffix(src.name, ".gz"), ".json"))
	}
	for _, draw := range []func() (Picture, error){
		func() (Picture, error) { a := about; a.Name = "trace_step" + suffix; return StepTimelines(a, steps) },
		func() (Picture, error) { a := about; a.Name = "trace_gaps" + suffix; return GapLengths(a, gaps) },
	} {
		p, err := draw()
		if err != nil {
			absent = append(absent, plain(err.Error())+".")
			continue
		}
		pictures = append(pictures, p)
	}
	return pictures, absent
}

// alike tells whether pictures of a cell would have the names of another record's
// cell.
func (s sources) alike(src *source, cell *results.Cell) bool {
	for other, from := range s.cells {
		if from != src && other.Key.Workload == cell.Key.Workload && other.Key.Batch == cell.Key.Batch && other.Key.GPUs == cell.Key.GPUs {
			return true
		}
	}
	return false
}

// wordOf keeps what a file's name can hold anywhere.
func wordOf(s string) string {
	out := []rune(plain(s))
	for i, r := range out {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.') {
			out[i] = '_'
		}
	}
	return string(out)
}

// readTraced reads a timeline of a traced pass: of the steps whose figures count
// the one of median length, and the gaps of all of them. They stand between steps
// that bring the host ahead of the device and one whose begin ends the last.
func readTraced(file, label string, steps int) (TracedStep, GapSet, error) {
	t, err := read.File(file, read.Options{})
	if err != nil {
		return TracedStep{}, GapSet{}, err
	}
	x := timeline.NewIndex(t)
	if len(t.Devices) == 0 {
		return TracedStep{}, GapSet{}, fmt.Errorf("trace %s holds no device", file)
	}
	all := x.Steps(0)
	if steps < 1 || len(all) < steps+1 {
		return TracedStep{}, GapSet{}, fmt.Errorf("trace %s holds %d steps, and %d and their end were to be in it", file, len(all), steps)
	}
	var windows []timeline.Window
	for i := len(all) - 1 - steps; i < len(all)-1; i++ {
		windows = append(windows, timeline.Window{FromNs: all[i].GPU.FromNs, ToNs: all[i+1].GPU.FromNs})
	}
	gaps := x.DeviceGaps(0, timeline.Window{FromNs: windows[0].FromNs, ToNs: windows[steps-1].ToNs})
	slices.SortStableFunc(windows, func(a, b timeline.Window) int { return cmp.Compare(a.Ns(), b.Ns()) })
	return TracedStep{Label: label, Index: x, Window: windows[(steps-1)/2]}, GapSet{Label: label, Gaps: gaps, Steps: steps}, nil
}
