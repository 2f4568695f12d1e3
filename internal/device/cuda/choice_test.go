package cuda

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	harness "github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/worker"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
	"github.com/tech-renaissance/trbench/workloads/data"
)

// Every field of a tuning has a word, and its words give it back.
func TestTuningHasWords(t *testing.T) {
	var full Tuning
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Bool {
			v.Field(i).SetBool(true)
		}
	}
	all := []Tuning{{}, full}
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Bool {
			var one Tuning
			reflect.ValueOf(&one).Elem().Field(i).SetBool(true)
			all = append(all, one)
		}
	}
	for _, e := range []Edges{EdgesStreams, EdgesSerial, EdgesHazards} {
		full.Edges = e
		all = append(all, full)
	}
	names := map[string]bool{}
	for _, want := range all {
		words := want.String()
		if got, err := ParseTuning(words); err != nil || got != want {
			t.Errorf("%+v is %q, which is %+v, %v", want, words, got, err)
		}
		names[words] = true
	}
	if len(names) != len(all)-1 { // with the order of streams it is there twice
		t.Errorf("%d names of %d tunings: %v", len(names), len(all), names)
	}
}

// Candidates are different, the plain one first and those with another order of
// nodes behind one without; with a second launcher none has dependent launch.
func TestTunings(t *testing.T) {
	x := fakeRig(t, nil)
	for _, other := range []bool{false, true} {
		o := Options{}
		if other {
			o.Submitter = &second{}
		}
		d := x.device(o)
		words := d.Tunings()
		if words[0] != "none" || len(words) < 4 || len(slices.Compact(slices.Sorted(slices.Values(words)))) != len(words) {
			t.Errorf("candidates %v", words)
		}
		streams := 0
		for i, w := range words {
			must(t, d.Tune(results.TuningChoice{Words: w}))
			order := d.Tuned().GraphOrder
			if tuning := d.Tuning(); (order == "") != (tuning.Edges == EdgesStreams) || other && tuning.Dependent {
				t.Errorf("%s: order %q of %+v", w, order, tuning)
			}
			if order == "" {
				streams++
			} else if i < 2 || streams < 2 {
				t.Errorf("%s comes before what streams order: %v", w, words)
			}
		}
		if raw, err := d.Plans(); err != nil || len(raw) != 0 {
			t.Errorf("a candidate is recorded as %s, %v", raw, err)
		}
	}
	d := x.device(Options{Submitter: &second{}})
	wants(t, d.Tune(results.TuningChoice{Words: "dependent"}), nil, "no dependent launch")
	wants(t, d.Tune(results.TuningChoice{Words: "fills,some"}), nil, "some")
	if d.Tuning() != (Tuning{}) {
		t.Errorf("a refused tuning left %+v", d.Tuning())
	}
}

// The rule of thumb knows small cells from large ones.
func TestRuleOfThumb(t *testing.T) {
	x := fakeRig(t, nil)
	d := x.device(Options{})
	for _, c := range []struct {
		model string
		batch int
		want  string
	}{
		{"resnet18-cifar", 16, "fills,copies,dependent,join,mask,stem,hazards"}, {"resnet18-cifar", 256, "fills,copies,dependent,join,mask,stem,hazards"},
		{"resnet50", 64, "fills,copies,dependent,join,mask,stem,hazards"}, {"resnet50", 256, "fills,copies,dependent,join,mask,stem"},
	} {
		w, err := workloads.New(workloads.Spec{Model: c.model, Batch: c.batch, Ranks: 1, Precision: workloads.AMP, Optimizer: workloads.SGD},
			workloads.Target{Lowering: workloads.Fused})
		must(t, err)
		if words, rule := d.RuleOfThumb(w); words != c.want || !strings.Contains(rule, "5 GiB") {
			t.Errorf("%s at %d: %s by %q, want %s", c.model, c.batch, words, rule, c.want)
		}
	}
}

func tuneRequest(tune string, ways ...string) harness.CellRequest {
	c := results.DefaultCellKey()
	c.Workload, c.Batch, c.Device, c.Kernels = "golden-tiny", 2, "cuda", "builtin"
	warmup := 1
	req := harness.CellRequest{Cell: c, Steps: 2, Single: 1, Blocks: 1, Warmup: &warmup, Seed: 5, Tune: tune,
		Data: data.Options{Kind: data.Random, Seed: 5}}
	for _, k := range ways {
		req.Configurations = append(req.Configurations, key(k))
	}
	return req
}

func codes(c *results.Cell) (out []string) {
	for _, w := range c.Warnings {
		out = append(out, w.Code)
	}
	return out
}

// The first process times the candidates, each in a session of its own that
// leaves nothing behind; what it took is recorded with all times, and another
// process takes it as it is.
func TestTuneAuto(t *testing.T) {
	x := fakeRig(t, nil)
	dev := x.device(Options{})
	handles := x.m.Live()
	var phases []string
	req := tuneRequest(harness.TuneAuto, "eager/event/device", "step/inside/device")
	req.Events = func(e harness.Event) { phases = append(phases, e.Phase) }
	cell, err := worker.RunCell(context.Background(), dev, req)
	must(t, err)
	if now := x.m.Live(); !maps.Equal(now, handles) {
		t.Errorf("handles were %v, are %v", handles, now)
	}
	// With what the driver keeps of destroyed execs for the next ones.
	used := memoryUsed(t, x)
	choice, ok := cell.Tuning()
	if !ok || choice.Source != results.TuningTimed || len(choice.Candidates) != len(dev.Tunings()) || !slices.Contains(dev.Tunings(), choice.Words) {
		t.Fatalf("recorded %+v", choice)
	}
	var blocks [][]float64
	for i, k := range choice.Candidates {
		if k.Words != dev.Tunings()[i] || k.StepTimeNs <= 0 || k.SubmitTimeNs <= 0 || len(k.BlocksNs) != 9 || k.ArenaBytes == 0 || k.Failure != "" ||
			k.StepTimeNs != results.Median(k.BlocksNs) {
			t.Errorf("candidate %+v", k)
		}
		blocks = append(blocks, k.BlocksNs)
	}
	if at := harness.Simplest(blocks, harness.TuneTie); choice.Candidates[at].Words != choice.Words {
		t.Errorf("%s was taken, %s is what the times say", choice.Words, choice.Candidates[at].Words)
	}
	if dev.Tuning().String() != choice.Words {
		t.Errorf("ran with %s, recorded %s", dev.Tuning(), choice.Words)
	}
	if got := slices.Contains(codes(cell), "graph_order"); got != (choice.GraphOrder != "") {
		t.Errorf("order %q, warnings %v", choice.GraphOrder, codes(cell))
	}
	if !slices.Contains(phases, "way none") {
		t.Errorf("phases %v", phases)
	}

	// The second process.
	phases = nil
	second := x.device(Options{})
	req.Process, req.Plans = 1, cell.Plans
	again, err := worker.RunCell(context.Background(), second, req)
	must(t, err)
	if got, _ := again.Tuning(); !reflect.DeepEqual(got, choice) || second.Tuning().String() != choice.Words {
		t.Errorf("handed over %+v, ran with %s", got, second.Tuning())
	}
	if slices.ContainsFunc(phases, func(p string) bool { return strings.HasPrefix(p, "way ") }) {
		t.Errorf("the second process timed: %v", phases)
	}
	// A cell that has no plans yet chooses anew on the same device.
	phases, req.Plans = nil, nil
	if _, err := worker.RunCell(context.Background(), second, req); err != nil || !slices.Contains(phases, "way none") {
		t.Errorf("the next cell's phases: %v, %v", phases, err)
	}
	if now := memoryUsed(t, x); now != used || !maps.Equal(x.m.Live(), handles) {
		t.Errorf("memory in use was %d, is %d; handles were %v, are %v", used, now, handles, x.m.Live())
	}
}

// memoryUsed is asked with a group open, the same each time.
func memoryUsed(t *testing.T, x *rig) uint64 {
	t.Helper()
	g, err := x.try()
	must(t, err)
	free, total, err := g.Memory()
	must(t, err, g.Close())
	return total[0] - free[0]
}

// What cannot be opened is left out and named; the others are compared.
func TestTuneLeavesOut(t *testing.T) {
	if raceDetector {
		t.Skip("TestTuneAuto shows the same races")
	}
	for _, c := range []struct {
		name  string
		fault fake.Fault
		want  []string // left out
	}{
		{"occupancy", fake.Fault{Call: "cuOccupancyMaxActiveBlocksPerMultiprocessor", Code: 801}, []string{"onekernel"}},
		{"first capture", fake.Fault{Call: "cuStreamEndCapture", Nth: 1, Code: 999}, []string{"none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := fakeRig(t, nil)
			dev := x.device(Options{})
			handles := x.m.Live()
			x.m.Fail(c.fault)
			cell, err := worker.RunCell(context.Background(), dev, tuneRequest(harness.TuneAuto, "eager/event/device", "step/inside/device"))
			x.m.ClearFaults()
			must(t, err)
			choice, _ := cell.Tuning()
			left := 0
			for _, k := range choice.Candidates {
				named := slices.ContainsFunc(strings.Split(k.Words, ","), func(w string) bool { return slices.Contains(c.want, w) })
				if named != (k.Failure != "") || named == (len(k.BlocksNs) > 0) {
					t.Errorf("candidate %+v", k)
				}
				if named {
					left++
				}
			}
			said := 0
			for _, w := range cell.Warnings {
				if w.Code == "tuning_left_out" && strings.Contains(w.Text, "was left out") && len(w.Text) > 60 {
					said++
				}
			}
			if left == 0 || said != left {
				t.Errorf("%d left out, %d named: %+v", left, said, cell.Warnings)
			}
			if now := x.m.Live(); !maps.Equal(now, handles) {
				t.Errorf("handles were %v, are %v", handles, now)
			}
		})
	}
}

// Where memory does not hold all sessions, they come one after another.
func TestTuneWithLittleMemory(t *testing.T) {
	if raceDetector {
		t.Skip("TestTuneAuto shows the same races")
	}
	m := fake.H200(1)
	m.GPUs[0].Memory = 522 << 20 // a context takes 512 MiB, a session some
	x := fakeRig(t, m)
	dev := x.device(Options{})
	cell, err := worker.RunCell(context.Background(), dev, tuneRequest(harness.TuneAuto, "step/inside/device"))
	must(t, err)
	choice, _ := cell.Tuning()
	if !strings.Contains(choice.Rule, "one way after another") {
		t.Errorf("rule %q", choice.Rule)
	}
	for _, k := range choice.Candidates {
		if k.Failure != "" || len(k.BlocksNs) != 9 {
			t.Errorf("candidate %+v", k)
		}
	}
}

// What is asked for is what runs, and is recorded with where it came from.
func TestTuneGiven(t *testing.T) {
	for _, c := range []struct {
		name, tune string
		quick      bool
		own        Tuning // the device's
		words      string
		source     string
		warnings   []string
	}{
		{name: "nothing", words: ""},
		{name: "none", tune: "none", words: "none", source: "given"},
		{name: "words", tune: "serial,fills", words: "fills,serial", source: "given", warnings: []string{"graph_order"}},
		{name: "rule", tune: "rule", words: "fills,copies,dependent,join,mask,stem,hazards", source: "rule", warnings: []string{"tuning_by_rule", "graph_order"}},
		{name: "quick", tune: "auto", quick: true, words: "fills,copies,dependent,join,mask,stem,hazards", source: "rule", warnings: []string{"tuning_by_rule", "graph_order"}},
		{name: "the device's", tune: "auto", own: Tuning{FillKernels: true}, words: "fills", source: "given"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := fakeRig(t, nil)
			dev := x.device(Options{Tuning: c.own})
			req := tuneRequest(c.tune, "eager/event/device", "step/inside/device")
			req.Quick = c.quick
			cell, err := worker.RunCell(context.Background(), dev, req)
			must(t, err)
			got, ok := cell.Tuning()
			if got.Words != c.words || got.Source != c.source || ok != (c.source != "") || len(got.Candidates) > 0 {
				t.Errorf("recorded %+v", got)
			}
			var said []string
			for _, code := range codes(cell) {
				if strings.HasPrefix(code, "tuning_") || code == "graph_order" {
					said = append(said, code)
				}
			}
			if !slices.Equal(said, c.warnings) {
				t.Errorf("warnings %v, want %v", said, c.warnings)
			}
		})
	}
	x := fakeRig(t, nil)
	_, err := worker.RunCell(context.Background(), x.device(Options{}), tuneRequest("some", "step/inside/device"))
	wants(t, err, nil, "some")
}

// A record of a program that did not say how it chose is given.
func TestTuningWithoutChoice(t *testing.T) {
	x := fakeRig(t, nil)
	d := x.device(Options{})
	must(t, d.SetPlans([]json.RawMessage{json.RawMessage(`{"key":"tuning","fill_kernels":true,"edges":"hazards"}`)}))
	if c := d.Tuned(); c.Words != "fills,hazards" || c.Source != results.TuningGiven || c.GraphOrder == "" {
		t.Errorf("%+v", c)
	}
	wants(t, d.SetPlans([]json.RawMessage{json.RawMessage(`{"key":"tuning","edges":5}`)}), nil, "tuning")
}

// With fills and copies a step of resnet18-cifar holds kernels alone; without, its
// batch is a copy. That launching it makes no object is TestSubmittingAllocatesNothing's.
func TestStepOfKernelsAlone(t *testing.T) {
	if raceDetector {
		t.Skip("TestTunedTrainsAsTheCPU shows the same races")
	}
	for _, c := range []struct {
		words string
		other int // nodes that are no kernels
	}{{"none", 1}, {"fills,copies", 0}, {"fills,copies,hazards", 0}} {
		t.Run(c.words, func(t *testing.T) {
			x := fakeRig(t, nil)
			tuning, err := ParseTuning(c.words)
			must(t, err)
			dev := x.device(Options{Tuning: tuning})
			w, err := workloads.New(workloads.Spec{Model: "resnet18-cifar", Batch: 1, Ranks: 1, Precision: workloads.FP32, Optimizer: workloads.SGD,
				BeginResolution: 8, FinalResolution: 8}, dev.Target())
			must(t, err)
			s := session(t, dev, w, worker.Options{Variants: []workloads.Variant{workloads.FinalFull}})
			e, err := s.Executor(key("step/inside/device"))
			must(t, err, e.Begin())
			info := e.Set().Info(worker.StepSegments(workloads.FinalFull)[0])
			if info.Nodes["kernel"] < 100 || info.Total()-info.Nodes["kernel"] != c.other {
				t.Errorf("nodes %v", info.Nodes)
			}
		})
	}
}
