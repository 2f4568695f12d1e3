package cuda

import (
	"encoding/json"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/fake"
)

func TestParseTuning(t *testing.T) {
	for _, c := range []struct {
		words string
		want  Tuning
		bad   bool
	}{
		{"", Tuning{}, false},
		{"dependent", Tuning{Dependent: true}, false},
		{"onekernel,hazards", Tuning{OneKernelNorm: true, Edges: EdgesHazards}, false},
		{"serial,dependent,onekernel", Tuning{Dependent: true, OneKernelNorm: true, Edges: EdgesSerial}, false},
		{"serial,hazards", Tuning{}, true},
		{"fills", Tuning{FillKernels: true}, false},
		{"copies,fills", Tuning{CopyKernels: true, FillKernels: true}, false},
		{"join,mask,stem", Tuning{FusedJoin: true, NormMask: true, SpaceToDepth: true}, false},
		{"hazards,serial", Tuning{}, true},
		{"serial,serial", Tuning{}, true},
		{"fills,join,fills", Tuning{}, true},
		{"none", Tuning{}, false},
		{"none,join", Tuning{}, true},
		{"join,none", Tuning{}, true},
		{",", Tuning{}, true},
		{"join,", Tuning{}, true},
		{",join", Tuning{}, true},
		{"streams", Tuning{}, true},
		{"Serial", Tuning{}, true},
	} {
		got, err := ParseTuning(c.words)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %+v, %v", c.words, got, err)
		}
	}
}

// A tuning goes with the plans from process to process.
func TestTuningIsHandedOver(t *testing.T) {
	x := fakeRig(t, fake.H200(1))
	want := Tuning{Dependent: true, OneKernelNorm: true, FusedJoin: true, NormMask: true, SpaceToDepth: true, Edges: EdgesHazards}
	from, to := x.device(Options{Tuning: want}), x.device(Options{})
	raw, err := from.Plans()
	must(t, err, to.SetPlans(raw))
	if got := to.Tuning(); got != want || len(raw) != 1 {
		t.Errorf("%s became %+v", raw, got)
	}
	if raw, err := to.Plans(); err != nil || len(raw) != 1 {
		t.Errorf("handed on: %s, %v", raw, err)
	}
	// Plans that were made without a tuning run without one, whatever the
	// process was told.
	must(t, from.SetPlans([]json.RawMessage{json.RawMessage(`{"key":"conv"}`)}))
	if got := from.Tuning(); got != (Tuning{}) {
		t.Errorf("plans without a tuning run with %+v", got)
	}
	must(t, from.SetPlans(nil))
	if raw, err := x.device(Options{}).Plans(); err != nil || len(raw) != 0 {
		t.Errorf("the default is recorded as %s, %v", raw, err)
	}
	wants(t, to.SetPlans([]json.RawMessage{json.RawMessage(`{"key":"tuning","edges":"some"}`)}), nil, "some")
}
