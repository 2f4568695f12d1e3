package results

import (
	"net/url"
	"strconv"
	"strings"
)

// RowKey names a row: what is compared, and kept in history. It is comparable.
type RowKey struct {
	Cell          CellKey          `json:"cell"`
	Configuration ConfigurationKey `json:"configuration"`
	Metric        string           `json:"metric"`
}

// String is the row's name: a path without blanks, which tells any two rows
// apart that differ in what they run. It begins with workload, batch and gpus
// and ends with mode, sync, control and metric. Between them stands what is not
// the default; a last batch as large as others is, and on the CPU its only
// launcher.
//
//	resnet50/batch=32/gpus=1/precision=amp/resolution=224/device=cuda/kernels=cudnn/step/inside/device/step_time_ns
func (k RowKey) String() string {
	var b strings.Builder
	part := func(name, value string) {
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		if name != "" {
			b.WriteString(name + "=")
		}
		b.WriteString(url.PathEscape(value))
	}
	text := func(name, value, usual string) {
		if value != usual {
			part(name, value)
		}
	}
	number := func(name string, value, usual int64) {
		if value != usual {
			part(name, strconv.FormatInt(value, 10))
		}
	}
	flag := func(name string, value bool) {
		if value {
			part(name, "true")
		}
	}
	// pair is left out where both are 0 or usual.
	pair := func(name string, first, second, usual int) {
		switch {
		case (first == 0 || first == usual) && (second == 0 || second == usual):
		case first == second:
			part(name, strconv.Itoa(first))
		default:
			part(name, strconv.Itoa(first))
			b.WriteString("," + strconv.Itoa(second)) // part would escape the comma
		}
	}
	c, usual := k.Cell, DefaultCellKey()
	part("", c.Workload)
	part("batch", strconv.Itoa(c.Batch))
	part("gpus", strconv.Itoa(c.GPUs))
	text("precision", c.Precision, usual.Precision)
	text("optimizer", c.Optimizer, usual.Optimizer)
	flag("ema", c.EMA)
	if c.Smoothing != 0 {
		part("smoothing", strconv.FormatFloat(c.Smoothing, 'g', -1, 64))
	}
	flag("frozen", c.Frozen)
	pair("resolution", c.Resolution.Begin, c.Resolution.Final, 0)
	pair("last_batch", c.LastBatch.Train, c.LastBatch.Val, c.Batch)
	number("variant", int64(c.Variant), int64(usual.Variant))
	text("device", c.Device, usual.Device)
	x, plain := k.Configuration, DefaultConfigurationKey()
	if c.Device == usual.Device {
		plain.Launcher = cpuLauncher
	}
	text("kernels", c.Kernels, usual.Kernels)
	text("launcher", x.Launcher, plain.Launcher)
	text("ranks", x.Ranks, plain.Ranks)
	number("dispatch_ns", x.DispatchNs, 0)
	part("", x.Mode)
	part("", x.Sync)
	part("", x.Control)
	part("", k.Metric)
	return b.String()
}

// cpuLauncher is the only launcher of the CPU device.
const cpuLauncher = "go"

// Gated lists the metrics that a guard judges, in the order they are shown.
// All are times: lower is better.
func Gated() []string { return []string{StepTimeNs, SubmitTimeNs, LatencyNs} }
