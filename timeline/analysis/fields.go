package analysis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tech-renaissance/trbench/timeline"
)

// Field is one named figure: a text, an int64, a float64, or nil if unknown.
type Field struct {
	Name  string
	Value any
}

// NoWork is what is said of a recording without GPU work.
const NoWork = "no GPU work recorded"

// Nothing are the fields of a recording without GPU work.
func Nothing(t *timeline.Timeline) []Field {
	out := []Field{{"file", t.Source}, {"format", t.Format}, {"device", nil}, {"verdict", nil}, {"note", NoWork}}
	return append(out, readFields(t.Read)...)
}

func readFields(r timeline.ReadReport) []Field {
	at := func(ns int64, known bool) any {
		if !known {
			return nil
		}
		return ns
	}
	return []Field{
		{"read_bytes", r.Bytes}, {"lost_bytes", r.LostBytes}, {"lost_at_byte", at(r.LostAt, r.LostBytes > 0)}, {"lost_events", r.LostEvents},
		{"dropped_events", at(r.Dropped, r.Dropped >= 0)}, {"repaired_events", r.Repaired}, {"repaired_at_byte", at(r.RepairedAt, r.Repaired > 0)},
		{"truncated", r.Truncated}, {"bad_times", r.BadTimes}, {"profiler_overhead_ns", r.OverheadNs},
		{"not_recorded", strings.Join(r.NotRecorded, "; ")}, {"read_notes", strings.Join(r.Notes, " ")},
	}
}

// Fields are all figures of a device, flat and in a fixed order. Those without a
// prefix are of the device's span; those that begin with window_ of what the
// verdict is about.
func (a Device) Fields() []Field {
	var rank any
	if a.Rank != timeline.None {
		rank = int64(a.Rank)
	}
	out := []Field{{"file", a.File}, {"format", a.Format}, {"rank", rank}, {"device", a.ID}, {"device_name", a.Name}, {"note", nil}}
	add := func(name string, v any) {
		switch n := v.(type) {
		case int:
			v = int64(n)
		}
		out = append(out, Field{name, v})
	}
	share := func(part, whole int64) any {
		if whole <= 0 {
			return nil
		}
		return float64(part) / float64(whole)
	}
	figures := func(prefix string, f timeline.Figures) {
		s := f.Split
		for _, p := range []struct {
			name string
			v    int64
		}{
			{"ops", int64(f.Ops)}, {"linked_ops", int64(f.Linked)}, {"unlinked_ops", int64(f.Unlinked())}, {"zero_duration_ops", int64(f.ZeroOps)},
			{"kernels", int64(f.Kernels)}, {"copies", int64(f.Copies)}, {"fills", int64(f.Fills)}, {"graph_envelopes", int64(f.Envelopes)},
			{"span_ns", f.SpanNs}, {"busy_ns", f.BusyNs}, {"idle_ns", f.IdleNs}, {"gaps", int64(f.Gaps)}, {"ops_ns", f.OpsNs},
			{"host_late_ns", s.HostLateNs}, {"in_api_ns", s.InAPINs}, {"after_api_ns", s.AfterAPINs}, {"unlinked_ns", s.UnlinkedNs},
			{"host_late_overhead_ns", s.Late.OverheadNs}, {"host_late_sync_ns", s.Late.SyncNs}, {"host_late_feed_ns", s.Late.FeedNs}, {"host_late_call_ns", s.Late.CallNs},
			{"host_late_operator_ns", s.Late.OperatorNs}, {"host_late_user_ns", s.Late.UserNs}, {"host_late_python_ns", s.Late.PythonNs}, {"host_late_nothing_ns", s.Late.NothingNs},
			{"in_graph_ns", s.InGraphNs}, {"unlinked_before_ns", s.UnlinkedBeforeNs}, {"unlinked_inside_ns", s.UnlinkedInsideNs}, {"unlinked_end_ns", s.UnlinkedEndNs},
		} {
			add(prefix+p.name, p.v)
		}
	}
	figures("", a.Span)
	g := a.Integrity
	add("max_ops_per_launch", g.MaxOpsPerLaunch)
	add("launches", g.Launches)
	add("busy_share_of_span", share(a.Span.BusyNs, a.Span.SpanNs))
	add("untimed_ops", g.Untimed)
	add("unlinked_before_first_call_ops", g.UnlinkedBefore)
	add("unlinked_inside_ops", g.UnlinkedInside)
	add("overlaps", g.Overlaps)
	add("overlap_ns", g.OverlapNs)
	add("duplicate_ops", g.Duplicates)
	add("early_ops", g.Early)

	add("steps", len(a.Steps))
	if len(a.Steps) > 0 {
		add("steps_span_ns", a.OnHost.SpanNs)
		add("steps_busy_ns", a.OnHost.BusyNs)
		add("steps_idle_ns", a.OnHost.IdleNs)
	} else {
		add("steps_span_ns", nil)
		add("steps_busy_ns", nil)
		add("steps_idle_ns", nil)
	}
	add("busy_share_of_steps", share(a.OnHost.BusyNs, a.OnHost.SpanNs))
	add("window", a.Over)
	add("window_steps", a.Cycles)
	figures("window_", a.Window)
	add("busy_share_of_window", share(a.Window.BusyNs, a.Window.SpanNs))
	c := a.Causes
	add("cause_launch_ns", c.LaunchNs)
	add("cause_sync_ns", c.SyncNs)
	add("cause_input_ns", c.InputNs)
	add("cause_graph_ns", c.GraphNs)
	add("cause_host_ns", c.HostNs)
	add("cause_wait_ns", c.WaitNs)
	add("cause_overhead_ns", c.OverheadNs)
	add("cause_unlinked_ns", c.UnlinkedNs)

	quantiles := func(prefix string, d timeline.Distribution) {
		for _, p := range []struct {
			name string
			v    int64
		}{{"sum_ns", d.SumNs}, {"min_ns", d.MinNs}, {"p10_ns", d.P10Ns}, {"p50_ns", d.P50Ns}, {"p90_ns", d.P90Ns}, {"p99_ns", d.P99Ns}, {"max_ns", d.MaxNs}} {
			var v any = p.v
			if d.Count == 0 && p.name != "sum_ns" {
				v = nil
			}
			add(prefix+p.name, v)
		}
	}
	add("launch_calls", a.Launches.All.HostNs.Count)
	add("launch_calls_without_ops", a.Launches.All.Unmatched)
	quantiles("launch_call_", a.Launches.All.HostNs)
	add("sync_calls", a.Launches.Syncs.HostNs.Count)
	add("sync_calls_ns", a.Launches.Syncs.HostNs.SumNs)
	add("launch_delays", a.Delays.Ns.Count)
	add("negative_launch_delays", a.Delays.Negative)
	quantiles("launch_delay_", a.Delays.Ns)
	add("kernels_shorter_than_launch", a.Short.Count)
	add("kernels_compared_with_launch", a.Short.Of)
	quantiles("gap_", a.GapNs)
	add("graph_launches", a.Graphs.Launches)
	add("graph_ops", a.Graphs.Ops)
	add("graph_min_ops", a.Graphs.MinOps)
	add("graph_median_ops", a.Graphs.MedianOps)
	add("graph_max_ops", a.Graphs.MaxOps)
	if a.Graphs.Short != timeline.None {
		add("graph_short_replays", a.Graphs.Short)
	} else {
		add("graph_short_replays", nil)
	}
	if len(a.Kernels) > 0 {
		add("top_kernel", a.Kernels[0].Name)
		add("top_kernel_ns", a.Kernels[0].GPUNs.SumNs)
	} else {
		add("top_kernel", nil)
		add("top_kernel_ns", nil)
	}
	add("verdict", a.Verdict.Word)
	add("verdict_share", a.Verdict.Share)
	add("verdict_reason", a.Verdict.Reason)
	p := a.Capture
	if p.Withheld != "" {
		add("capture_withheld", p.Withheld)
		for _, n := range []string{"capture_low_ns", "capture_ordered_low_ns", "capture_high_ns", "capture_loss_ns"} {
			add(n, nil)
		}
	} else {
		add("capture_withheld", nil)
		add("capture_low_ns", p.LowNs)
		add("capture_ordered_low_ns", p.OrderedLowNs)
		add("capture_high_ns", p.HighNs)
		add("capture_loss_ns", p.LossNs)
	}
	add("capture_per", p.Per)
	add("capture_eager_ns", p.EagerNs)
	add("capture_busy_ns", p.BusyNs)
	add("capture_nodes", p.Nodes)
	add("capture_constants", ConstantsOf)
	add("capture_cannot", strings.Join(p.Cannot, "; "))
	return append(out, readFields(a.Read)...)
}

// JSON is one object on one line.
func JSON(fields []Field) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, v := range []any{f.Name, f.Value} {
			if j > 0 {
				b.WriteByte(':')
			}
			_ = e.Encode(v) // texts and finite numbers alone
			b.Truncate(b.Len() - 1)
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Text is a field's value as one word, empty if unknown.
func (f Field) Text() string {
	if f.Value == nil {
		return ""
	}
	return fmt.Sprint(f.Value)
}
