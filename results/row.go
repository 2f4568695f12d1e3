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
// apart. It begins with workload, batch and gpus and ends with mode, sync,
// control and metric. Between them stands what is not the default; on the CPU
// that includes its only launcher and its kernels.
//
//	resnet50/batch=32/gpus=1/precision=amp/device=cuda/kernels=cudnn/step/inside/device/step_time_ns
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
	number("begin", int64(c.Resolution.Begin), 0)
	number("final", int64(c.Resolution.Final), 0)
	number("last_batch", int64(c.LastBatch.Train), 0)
	number("last_val_batch", int64(c.LastBatch.Val), 0)
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
