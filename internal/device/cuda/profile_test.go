package cuda

import (
	"context"
	"slices"
	"strings"
	"testing"

	harness "github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// A profiler's capture holds the steps that it is shown and nothing else:
// verification and warm-up are before it.
func TestProfilerSeesTheStepsAlone(t *testing.T) {
	x := fakeRig(t, nil)
	c := results.DefaultCellKey()
	c.Workload, c.Batch, c.Device, c.Kernels = "golden-tiny", 2, "cuda", "builtin"
	warmup := 3
	req := harness.CellRequest{Cell: c, Configurations: []results.ConfigurationKey{key("step/inside/device")}, Steps: 2, Warmup: &warmup, Seed: 5,
		Quick: true, Data: data.Options{Kind: data.Random, Seed: 5}}
	x.m.Record(true)
	verify, err := worker.Profile(context.Background(), x.device(Options{}), req)
	log := x.m.Log()
	x.m.Record(false)
	must(t, err)
	if !verify.Equal || verify.Tensors == 0 {
		t.Errorf("verified %+v", verify)
	}
	var part, launches [3]int // before, in and after the capture
	at := 0
	for _, line := range log {
		switch call, _, _ := strings.Cut(line, " "); call {
		case "cuProfilerStart":
			at++
		case "cuProfilerStop":
			at++
		case "cuGraphLaunch":
			part[at]++
		case "cuLaunchKernel":
			launches[at]++
		}
		if at > 2 {
			t.Fatal("more than one capture")
		}
	}
	if at != 2 || part[0] < warmup || part[1] != 2 || part[2] != 0 || launches[0] == 0 || launches[1] != 0 || launches[2] != 0 {
		t.Errorf("%d captures' ends; graphs launched before, in and after it %v, kernels %v", at, part, launches)
	}
	req.Configurations = append(req.Configurations, key("eager/event/device"))
	if _, err := worker.Profile(context.Background(), x.device(Options{}), req); err == nil || !strings.Contains(err.Error(), "2 configurations") {
		t.Errorf("two configurations: %v", err)
	}
}

// A rank's handles are the driver's: what a tool is given names of.
func TestHandles(t *testing.T) {
	x := fakeRig(t, nil)
	dev := x.device(Options{})
	w, err := workloads.New(tinySpec(), dev.Target())
	must(t, err)
	g, err := dev.Open(w)
	must(t, err)
	defer func() { must(t, g.Close()) }()
	h := g.Rank(0).(device.Handles)
	var streams []uintptr
	for s := range workloads.NumStreams {
		st := h.CuStream(s)
		if st == 0 || slices.Contains(streams, st) {
			t.Errorf("stream %s is %#x", s, st)
		}
		streams = append(streams, st)
	}
	if h.CuDevice() != 0 {
		t.Errorf("device %d", h.CuDevice())
	}
}
