package eager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/device"
	"github.com/tech-renaissance/trbench/internal/walk"
	"github.com/tech-renaissance/trbench/workloads"
)

// recorder is a rank that prepares operators which only write themselves down.
type recorder struct {
	device.Rank
	submitted []string
	failing   string
}

type op struct {
	r *recorder
	b *workloads.Bound
}

func (r *recorder) ID() int                                       { return 0 }
func (r *recorder) Prepare(b *workloads.Bound) (device.Op, error) { return &op{r, b}, nil }
func (o *op) Bound() *workloads.Bound                             { return o.b }

// Calls is 2, that operators and calls are told apart.
func (o *op) Calls() int { return 2 }
func (o *op) Submit(v workloads.Variant) error {
	if o.b.Name == o.r.failing {
		return fmt.Errorf("%s: %w", o.b.Name, errors.ErrUnsupported)
	}
	o.r.submitted = append(o.r.submitted, o.b.Name)
	return nil
}

func launcher(t *testing.T) (*recorder, *Launcher, []string) {
	t.Helper()
	w, err := workloads.New(workloads.Spec{Model: "golden-tiny", Batch: 2, Precision: workloads.AMP},
		workloads.Target{Lowering: workloads.Fused})
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	table, err := walk.Prepare(r, w, []workloads.Variant{workloads.FinalFull})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range w.Bounds(workloads.NaNCheck, workloads.FinalFull, workloads.ControlDevice) {
		names = append(names, b.Name)
	}
	return r, &Launcher{Table: table}, names
}

func TestLaunchSubmitsEachOperatorOnce(t *testing.T) {
	r, l, want := launcher(t)
	var c walk.Counts
	if err := l.Launch(workloads.NaNCheck, workloads.FinalFull, &c); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.submitted, want) || c != (walk.Counts{Host: 2 * int64(len(want))}) {
		t.Errorf("submitted %v and counted %+v, want %v", r.submitted, c, want)
	}
	r.submitted, l.Control = nil, workloads.ControlHost
	if err := l.Launch(workloads.NaNCheck, workloads.FinalFull, &c); err != nil {
		t.Fatal(err)
	}
	if len(r.submitted) != len(want)-1 || slices.Contains(r.submitted, "control") {
		t.Errorf("with host control %v", r.submitted)
	}
	c = walk.Counts{}
	if err := l.Launch(workloads.TransferA, workloads.FinalFull, &c); err != nil || c.Copy != 1 {
		t.Errorf("a transfer counts %+v, %v", c, err)
	}
	c = walk.Counts{}
	if err := l.Launch(workloads.DeepComm, workloads.FinalFull, &c); err != nil || c != (walk.Counts{}) {
		t.Errorf("an empty slot counts %+v, %v", c, err)
	}
}

func TestLaunchStopsAtTheFirstFailure(t *testing.T) {
	r, l, want := launcher(t)
	r.failing = want[1]
	var c walk.Counts
	err := l.Launch(workloads.NaNCheck, workloads.FinalFull, &c)
	if err == nil || !strings.Contains(err.Error(), want[1]) || c != (walk.Counts{}) || len(r.submitted) != 1 {
		t.Errorf("got %v after %v, counted %+v", err, r.submitted, c)
	}
}

func TestDispatchIsBurntBeforeEachSubmission(t *testing.T) {
	_, l, want := launcher(t)
	l.Dispatch = 2 * time.Millisecond
	var c walk.Counts
	begin := time.Now()
	if err := l.Launch(workloads.NaNCheck, workloads.FinalFull, &c); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d < time.Duration(len(want))*l.Dispatch {
		t.Errorf("%d operators took %v", len(want), d)
	}
}
