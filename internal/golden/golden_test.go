package golden

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/workloads"
)

// fixture builds a small index and its blob. Changes are made to the index
// before it is written.
type fixture struct {
	index map[string]any
	blob  []byte
}

func (f *fixture) add(kind, name, dtype string, shape []int, values ...float64) map[string]any {
	offset := len(f.blob)
	for _, v := range values {
		switch dtype {
		case "f32":
			f.blob = binary.LittleEndian.AppendUint32(f.blob, math.Float32bits(float32(v)))
		case "i32":
			f.blob = binary.LittleEndian.AppendUint32(f.blob, uint32(int32(v)))
		case "u8":
			f.blob = append(f.blob, byte(v))
		}
	}
	return map[string]any{"kind": kind, "name": name, "dtype": dtype, "shape": shape, "offset": offset}
}

func newFixture() *fixture {
	f := &fixture{}
	shared := []any{f.add("initial", "fc.weight", "f32", []int{2, 1}, .25, -.5)}
	for _, step := range []string{"step1", "step2"} {
		shared = append(shared,
			f.add("images", step, "u8", []int{1, 1, 1, 3}, 0, 128, 255),
			f.add("labels", step, "i32", []int{1}, 1))
	}
	state := func(loss, a, b float64) []any {
		return []any{
			f.add(Loss, "loss", "f32", []int{}, loss),
			f.add(Grad, "fc.weight", "f32", []int{2, 1}, a, b),
			f.add(Weight, "fc.weight", "f32", []int{2, 1}, a, b),
		}
	}
	oneCase := func(name, precision string) any {
		return map[string]any{
			"name": name, "optimizer": "nesterov", "precision": precision, "made_by": "hand",
			"learning_rates": []float64{.5, .25},
			"steps": []any{
				map[string]any{"step": 1, "tensors": state(2, 3, 4)},
				map[string]any{"step": 2, "tensors": state(1, 30, 40)},
			},
		}
	}
	f.index = map[string]any{
		"format": format, "version": version, "model": "golden-tiny", "seed": 7, "blob": "golden.bin",
		"made_with": map[string]any{"torch": "2.11.0", "gpu": "a GPU"},
		"net":       map[string]any{"batch": 1, "side": 1, "classes": 2, "steps": 2, "mean": []float64{0, 0, 0}, "std": []float64{1, 1, 1}},
		"hyper":     map[string]any{"momentum": .9, "smoothing": .1, "scale": 1024, "bn_epsilon": 1e-5},
		"tensors":   shared, "cases": []any{oneCase("nesterov-fp32", "fp32"), oneCase("nesterov-amp", "amp")},
	}
	f.seal()
	return f
}

// seal writes the blob's size and hash into the index.
func (f *fixture) seal() {
	sum := sha256.Sum256(f.blob)
	f.index["blob_bytes"], f.index["blob_sha256"] = len(f.blob), hex.EncodeToString(sum[:])
}

func (f *fixture) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	index, err := json.Marshal(f.index)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{IndexName: index, "golden.bin": f.blob} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (f *fixture) shared(i int) map[string]any { return f.index["tensors"].([]any)[i].(map[string]any) }
func (f *fixture) oneCase(i int) map[string]any {
	return f.index["cases"].([]any)[i].(map[string]any)
}
func (f *fixture) step(c, i int) map[string]any {
	return f.oneCase(c)["steps"].([]any)[i].(map[string]any)
}

func TestLoad(t *testing.T) {
	g, err := Load(newFixture().write(t))
	if err != nil {
		t.Fatal(err)
	}
	if g.Model != "golden-tiny" || g.Seed != 7 || g.MadeWith.Torch != "2.11.0" || g.Hyper.Scale != 1024 {
		t.Errorf("header: %+v", g)
	}
	if len(g.Initial) != 1 || g.Initial[0].Data[1] != -.5 || len(g.Initial[0].Shape) != 2 {
		t.Errorf("initial: %+v", g.Initial)
	}
	if len(g.Images) != 2 || g.Images[1][1] != 128 || len(g.Labels) != 2 || g.Labels[1][0] != 1 {
		t.Errorf("data: %v %v", g.Images, g.Labels)
	}
	c := g.Case("nesterov-amp")
	if c == nil || c.Precision != workloads.AMP || len(c.Steps) != 2 || c.Steps[1].Tensors[2].Data[1] != 40 || c.LearningRates[1] != .25 {
		t.Fatalf("case: %+v", c)
	}
	if g.Case("none") != nil {
		t.Error("a case that is not there")
	}
	s := g.Spec(c)
	if s.Model != "golden-tiny" || s.Batch != 1 || s.Optimizer != workloads.Nesterov || !s.EMA || s.Smoothing != .1 ||
		s.Hyper.InitialScale != 1024 || !s.Hyper.UnbiasedVariance || s.Hyper.Momentum != .9 || len(s.Hyper.LearningRates) != 2 {
		t.Errorf("spec: %+v", s)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(f *fixture)
		want string // in the message
	}{
		{"another format", func(f *fixture) { f.index["format"] = "x" }, `"x"`},
		{"a later version", func(f *fixture) { f.index["version"] = 2 }, "version 2"},
		{"a changed blob", func(f *fixture) { f.blob[3] ^= 1 }, "sha256"},
		{"a short blob", func(f *fixture) { f.blob = f.blob[:8] }, "8 bytes"},
		{"a blob elsewhere", func(f *fixture) { f.index["blob"] = "../golden.bin" }, "beside"},
		{"an offset outside", func(f *fixture) { f.shared(0)["offset"] = 1 << 20 }, "outside"},
		{"a negative offset", func(f *fixture) { f.shared(0)["offset"] = -4 }, "outside"},
		{"a huge shape", func(f *fixture) { f.shared(0)["shape"] = []int{1 << 40, 1 << 40} }, "shape"},
		{"an empty shape", func(f *fixture) { f.shared(0)["shape"] = []int{0} }, "shape"},
		{"an unknown type", func(f *fixture) { f.shared(0)["dtype"] = "f8" }, `"f8"`},
		{"an unknown kind", func(f *fixture) { f.shared(0)["kind"] = "x" }, `"x"`},
		{"an unknown optimizer", func(f *fixture) { f.oneCase(0)["optimizer"] = "adam" }, `"adam"`},
		{"an unknown precision", func(f *fixture) { f.oneCase(0)["precision"] = "fp8" }, `"fp8"`},
		{"a missing rate", func(f *fixture) { f.oneCase(1)["learning_rates"] = []float64{1} }, "1 learning rates"},
		{"a case twice", func(f *fixture) { f.oneCase(1)["name"] = "nesterov-fp32" }, "twice"},
		{"a tensor twice", func(f *fixture) {
			s := f.step(0, 0)["tensors"].([]any)
			f.step(0, 0)["tensors"] = append(s, s[0])
		}, "twice"},
		{"a step out of order", func(f *fixture) { f.step(0, 1)["step"] = 1 }, "step 1 after step 1"},
		{"images of another shape", func(f *fixture) { f.shared(1)["shape"] = []int{1, 3} }, "shape [1 3]"},
		{"images out of order", func(f *fixture) { f.shared(1)["name"] = "step2" }, "want step1"},
		{"a missing step", func(f *fixture) { f.index["tensors"] = f.index["tensors"].([]any)[:3] }, "want 2"},
		{"a label outside", func(f *fixture) {
			f.blob[f.shared(2)["offset"].(int)] = 2
			f.seal()
		}, "label 2 of 2"},
		{"a NaN", func(f *fixture) {
			binary.LittleEndian.PutUint32(f.blob, math.Float32bits(float32(math.NaN())))
			f.seal()
		}, "not finite"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture()
			c.do(f)
			_, err := Load(f.write(t))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := Load(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestDistance(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name string
		a, b []float32
		want float64
	}{
		{"equal", []float32{3, 4}, []float32{3, 4}, 0},
		{"relative to the golden", []float32{3, 5}, []float32{3, 4}, .2},
		{"zero against zero", []float32{0, 0}, []float32{0, 0}, 0},
		{"the floor", []float32{1e-8, 1e-8}, []float32{0, 0}, 1e-2},
		{"lengths", []float32{1}, []float32{1, 2}, math.Inf(1)},
		{"NaN", []float32{nan, 4}, []float32{3, 4}, math.Inf(1)},
		{"Inf", []float32{3, inf}, []float32{3, 4}, math.Inf(1)},
		{"absent", nil, []float32{3, 4}, math.Inf(1)},
	} {
		if d := Distance(c.a, c.b); d != c.want && math.Abs(d-c.want) > 1e-6 {
			t.Errorf("%s: %g, want %g", c.name, d, c.want)
		}
	}
}

func TestCompare(t *testing.T) {
	g, err := Load(newFixture().write(t))
	if err != nil {
		t.Fatal(err)
	}
	// got answers with the golden values, each times 1+err of its kind.
	got := func(c *Case, step int, off map[string]float64) func(kind, name string) []float32 {
		return func(kind, name string) []float32 {
			for _, s := range c.Steps {
				for _, x := range s.Tensors {
					if s.Step == step && x.Kind == kind && x.Name == name {
						out := make([]float32, len(x.Data))
						for i, v := range x.Data {
							out[i] = float32(float64(v) * (1 + off[kind]))
						}
						return out
					}
				}
			}
			return nil
		}
	}
	for _, c := range []struct {
		name string
		step int
		off  map[string]float64
		want string // kinds, worst first
	}{
		{"nesterov-fp32", 1, nil, ""},
		{"nesterov-fp32", 1, map[string]float64{Grad: .9e-4, Loss: -.9e-4}, ""},
		{"nesterov-fp32", 1, map[string]float64{Grad: 1.1e-4, Weight: 2e-4}, "weight grad"},
		{"nesterov-fp32", 2, map[string]float64{Grad: .9e-3}, ""},
		{"nesterov-fp32", 2, map[string]float64{Loss: 1.1e-3}, "loss"},
		{"nesterov-amp", 1, map[string]float64{Grad: 1.9e-2}, ""},
		{"nesterov-amp", 1, map[string]float64{Grad: 2.1e-2}, "grad"},
		{"nesterov-amp", 2, map[string]float64{Grad: 1}, ""}, // not compared
		{"nesterov-amp", 2, map[string]float64{Weight: math.NaN(), Loss: .03}, "weight loss"},
	} {
		var kinds []string
		for _, m := range Compare(g.Case(c.name), c.step, got(g.Case(c.name), c.step, c.off)) {
			kinds = append(kinds, m.Kind)
		}
		if s := strings.Join(kinds, " "); s != c.want {
			t.Errorf("%s step %d %v: %q, want %q", c.name, c.step, c.off, s, c.want)
		}
	}

	first := g.Case("nesterov-fp32")
	absent := Compare(first, 1, func(kind, name string) []float32 { return nil })
	if len(absent) != 3 || !strings.Contains(absent[0].String(), "absent") {
		t.Errorf("absent: %v", absent)
	}
	if m := Compare(first, 3, got(first, 3, nil)); len(m) != 1 || !math.IsInf(m[0].Distance, 1) {
		t.Errorf("a step that is not stored: %v", m)
	}
}

// committed is the folder of the golden files that the tests of every device
// use.
const committed = "testdata"

func TestCommitted(t *testing.T) {
	g, err := Load(committed)
	if err != nil {
		t.Fatalf("%v\nscripts/golden_pytorch.py makes the golden files on a machine with a GPU", err)
	}
	script, err := os.ReadFile(filepath.Join("..", "..", g.MadeWith.Script))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(script); g.MadeWith.ScriptSHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the golden files were made by another version of %s: make them again", g.MadeWith.Script)
	}
	if g.MadeWith.Torch == "" || g.MadeWith.CUDNN == "" || g.MadeWith.GPU == "" {
		t.Errorf("made with: %+v", g.MadeWith)
	}
	for _, name := range []string{"sgd-fp32", "nesterov-fp32", "lars-fp32", "nesterov-amp", "lars-amp"} {
		c := g.Case(name)
		if c == nil {
			t.Errorf("no case %s", name)
			continue
		}
		if len(c.Steps) != 2 || c.Steps[0].Step != 1 || c.Steps[1].Step != 5 {
			t.Errorf("%s: stored steps: %d", name, len(c.Steps))
			continue
		}
		for _, s := range c.Steps {
			count := map[string]int{}
			for _, x := range s.Tensors {
				count[x.Kind]++
			}
			n := len(g.Initial)
			if count[Loss] != 1 || count[Grad] != n || count[Weight] != n || count[Momentum] != n || count[EMA] != n || count[Running] == 0 {
				t.Errorf("%s step %d: %v with %d parameters", name, s.Step, count, n)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	x := newFixture()
	index, err := json.Marshal(x.index)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(index)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, index []byte) {
		g, err := decode(index, func(string) ([]byte, error) { return x.blob, nil })
		if err == nil && g == nil {
			t.Error("neither golden nor error")
		}
	})
}
