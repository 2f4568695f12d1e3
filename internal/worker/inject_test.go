package worker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

type launched struct {
	ids  []workloads.SubGraph
	fail error
}

func (l *launched) Launch(id workloads.SubGraph, _ workloads.Variant, _ *walk.Counts) error {
	l.ids = append(l.ids, id)
	return l.fail
}

// One sub-graph is slowed by no less than was asked for, and all are launched.
func TestOneSubGraphIsSlowed(t *testing.T) {
	inner := &launched{fail: errors.New("launch")}
	l, err := slow(inner, results.Injection{SubGraph: "OPTIMIZER", Ns: 30e6})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := l.Launch(workloads.OptimizerUpdate, 2, nil); !errors.Is(err, inner.fail) || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	// The least of several, as this thread may be kept from running.
	least := time.Hour
	for range 5 {
		begin = time.Now()
		_ = l.Launch(workloads.ZeroGrad, 2, nil)
		least = min(least, time.Since(begin))
	}
	if least >= 30*time.Millisecond || !slices.Equal(inner.ids[:2], []workloads.SubGraph{workloads.OptimizerUpdate, workloads.ZeroGrad}) {
		t.Errorf("%v, %v", least, inner.ids)
	}
	for _, bad := range []results.Injection{{SubGraph: "NONE", Ns: 1}, {SubGraph: "OPTIMIZER"}, {SubGraph: "OPTIMIZER", Ns: -1}} {
		if _, err := slow(inner, bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// A slowed run computes the same bits, and its record says what it is.
func TestInjectionIsOnRecord(t *testing.T) {
	req := request(1, key("eager/event/device"), key("graph/event/device"))
	req.Inject = &results.Injection{SubGraph: "OPTIMIZER", Ns: 1000}
	c, err := RunCell(t.Context(), cpu.New(cpu.Options{}), req)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Verify.Equal || !slices.ContainsFunc(c.Warnings, func(w results.Warning) bool { return w.Code == "injected" }) {
		t.Errorf("%+v", c.Warnings)
	}
	req.Inject.SubGraph = "NONE"
	if _, err := RunCell(t.Context(), cpu.New(cpu.Options{}), req); err == nil {
		t.Error("an unknown sub-graph is taken")
	}
}
