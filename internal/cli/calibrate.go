package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device/cuda/calibrate"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// calibration is what info --calibrate measures.
type calibration struct {
	Device   string            `json:"device"`
	Readings []results.Reading `json:"readings"`
	// Trace is what recording does to known kernels and what one launch costs;
	// TraceMissing says why some of it, or all, is absent.
	Trace        *results.TraceCalibration `json:"trace,omitempty"`
	TraceMissing string                    `json:"trace_missing,omitempty"`
}

// calibrate measures on the device that a run would use. Recording comes last,
// as it may leave costs behind.
func (env *Env) calibrate(ctx context.Context) (*calibration, error) {
	if env.Engine.Machine == nil || env.Engine.CalibrateTrace == nil {
		return nil, &bench.InputError{Name: "--calibrate", Reason: "cannot be used: this program measures nothing"}
	}
	// info says beside it why another one cannot be used.
	devices := env.Engine.Devices("")
	i := slices.IndexFunc(devices, func(d Device) bool { return d.Missing == "" })
	if i < 0 {
		return nil, &bench.InputError{Name: "--calibrate", Reason: "cannot be used: no device can"}
	}
	device := devices[i]
	c := &calibration{Device: device.Name, Readings: env.Engine.Machine(ctx, device).Calibration}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var err error
	if c.Trace, err = env.Engine.CalibrateTrace(device.Name); err != nil {
		c.TraceMissing = err.Error()
	}
	return c, nil
}

// print shows the readings, and what one launch costs.
func (c *calibration) print(env *Env) error {
	out := &printer{w: env.Stdout}
	out.linef("\nCalibration of device %s", c.Device)
	g := report.Grid{Header: []string{"reading", "value", "observations", "what it is"}, Left: 1, LeftEnd: 1}
	for _, r := range c.Readings {
		value := strings.TrimSpace(strconv.FormatFloat(r.Value, 'g', 3, 64) + " " + r.Unit)
		if r.Unit == "ns" {
			value = report.SignedDuration(r.Value)
		}
		g.Rows = append(g.Rows, []string{r.Name, value, strconv.Itoa(r.N), cmp.Or(machine.Meaning(r.Name), calibrate.Meaning(r.Name))})
	}
	out.grid(g)
	out.linef("\nWhat one launch costs")
	if c.Trace != nil && len(c.Trace.Costs) > 0 {
		g := report.Grid{Header: []string{"layer", "call", "count", "median", "p99", "inflation"}, Left: 2}
		for _, l := range c.Trace.Costs {
			g.Rows = append(g.Rows, append([]string{l.Layer, cmp.Or(l.Call, "-")}, report.LaunchCostCells(l)...))
		}
		out.grid(g)
		for _, l := range report.LaunchCostLines() {
			out.linef("%s", l)
		}
	}
	if t := c.Trace; t != nil && t.Kernels > 0 {
		out.linef("Recording: an empty kernel takes %s in a chain, is %s long on record and starts every %s there; busy time is corrected by %s a kernel (+- %s).",
			report.Duration(t.UntracedNs), report.Duration(t.TracedNs), report.Duration(t.PeriodNs), report.SignedDuration(t.ByNs), report.Duration(t.UncertaintyNs))
	}
	if c.TraceMissing != "" {
		out.linef("absent: %s", c.TraceMissing)
	}
	return out.err
}
