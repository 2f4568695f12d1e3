// Package golden holds PyTorch's answers for a small net and compares a
// training step with them. scripts/golden_pytorch.py makes the files; the
// tests that train the net, on any device, read them with [Load] and judge
// with [Compare]. One rule: tolerances live here, and a test never widens one.
package golden

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/tech-renaissance/trbench/workloads"
)

// IndexName is the index file in a golden folder; it names the blob beside it.
const IndexName = "golden.json"

// What an index must say of itself.
const (
	format  = "trbench.golden"
	version = 1
)

// Kinds of a case's tensors.
const (
	Loss     = "loss"     // one tensor, named "loss": the step's mean loss, unscaled
	Grad     = "grad"     // FP32, unscaled
	Weight   = "weight"   // FP32 master weights after the update
	Momentum = "momentum" // after the update
	EMA      = "ema"      // averaged weights after the update
	Running  = "running"  // running means and variances after the step
)

// Golden is one run of the script.
type Golden struct {
	Model    string // a model of package workloads
	Seed     int
	MadeWith MadeWith
	Net      Net
	Hyper    Hyper
	Initial  []Tensor // weights before step 1; averages begin equal, momentum at 0, running mean 0 and variance 1
	Images   [][]byte // of each step, [batch, side, side, 3]
	Labels   [][]int32
	Cases    []Case
}

// MadeWith says where the files come from.
type MadeWith struct {
	Script       string `json:"script"`
	ScriptSHA256 string `json:"script_sha256"`
	Python       string `json:"python"`
	Torch        string `json:"torch"`
	CUDA         string `json:"cuda"` // this and the next two are empty if no GPU took part
	CUDNN        string `json:"cudnn"`
	GPU          string `json:"gpu"`
}

// Net is what every case trains on.
type Net struct {
	Batch   int        `json:"batch"`
	Side    int        `json:"side"` // of an image, in pixels
	Classes int        `json:"classes"`
	Steps   int        `json:"steps"`
	Mean    [3]float64 `json:"mean"`
	Std     [3]float64 `json:"std"`
}

// Hyper holds the constants that all cases share.
type Hyper struct {
	Momentum    float32 `json:"momentum"`
	WeightDecay float32 `json:"weight_decay"` // not on batch norm and biases
	Trust       float32 `json:"trust"`
	Smoothing   float64 `json:"smoothing"`
	EMADecay    float32 `json:"ema_decay"`
	BNMomentum  float32 `json:"bn_momentum"`
	BNEpsilon   float32 `json:"bn_epsilon"`
	Scale       float32 `json:"scale"` // of the loss in AMP, the same in every step
}

// Case is one optimizer in one precision.
type Case struct {
	Name          string
	Optimizer     workloads.Optimizer
	Precision     workloads.Precision
	LearningRates []float32 // one a step
	MadeBy        string    // the arithmetic of the reference
	Steps         []Step    // the stored ones, in order
}

// Step is the state after a step, counted from 1.
type Step struct {
	Step    int
	Tensors []Tensor
}

// Tensor is one stored array. Convolution weights are K,R,S,C.
type Tensor struct {
	Kind, Name string
	Shape      []int
	Data       []float32
}

// Spec is the workload that a case was made for: one rank, averages kept,
// every batch full.
func (g *Golden) Spec(c *Case) workloads.Spec {
	return workloads.Spec{
		Model: g.Model, Batch: g.Net.Batch, Ranks: 1,
		Precision: c.Precision, Optimizer: c.Optimizer,
		EMA: true, Smoothing: g.Hyper.Smoothing,
		BeginResolution: g.Net.Side, FinalResolution: g.Net.Side,
		LastTrainBatch: g.Net.Batch, LastValBatch: g.Net.Batch, BatchNormGroups: 1,
		Hyper: workloads.Hyper{
			LearningRates: slices.Clone(c.LearningRates),
			Momentum:      g.Hyper.Momentum, WeightDecay: g.Hyper.WeightDecay, Trust: g.Hyper.Trust,
			EMADecay: g.Hyper.EMADecay, BNEpsilon: g.Hyper.BNEpsilon, BNMomentum: g.Hyper.BNMomentum,
			InitialScale:     g.Hyper.Scale,
			GrowthInterval:   int32(g.Net.Steps) + 1, // the scale stays
			UnbiasedVariance: true,
		},
	}
}

// Case returns the case of that name, or nil.
func (g *Golden) Case(name string) *Case {
	for i := range g.Cases {
		if g.Cases[i].Name == name {
			return &g.Cases[i]
		}
	}
	return nil
}

// Load reads a folder that the script wrote, and checks the blob's hash.
func Load(dir string) (*Golden, error) {
	index, err := os.ReadFile(filepath.Join(dir, IndexName))
	if err != nil {
		return nil, fmt.Errorf("golden: %w", err)
	}
	g, err := decode(index, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) })
	if err != nil {
		return nil, fmt.Errorf("golden: %s: %w", dir, err)
	}
	return g, nil
}

// The index as it is written.
type (
	fileIndex struct {
		Format     string      `json:"format"`
		Version    int         `json:"version"`
		Model      string      `json:"model"`
		Seed       int         `json:"seed"`
		MadeWith   MadeWith    `json:"made_with"`
		Blob       string      `json:"blob"`
		BlobBytes  int         `json:"blob_bytes"`
		BlobSHA256 string      `json:"blob_sha256"`
		Net        Net         `json:"net"`
		Hyper      Hyper       `json:"hyper"`
		Tensors    []fileEntry `json:"tensors"`
		Cases      []fileCase  `json:"cases"`
	}
	fileCase struct {
		Name          string    `json:"name"`
		Optimizer     string    `json:"optimizer"`
		Precision     string    `json:"precision"`
		LearningRates []float32 `json:"learning_rates"`
		MadeBy        string    `json:"made_by"`
		Steps         []struct {
			Step    int         `json:"step"`
			Tensors []fileEntry `json:"tensors"`
		} `json:"steps"`
	}
	fileEntry struct {
		Kind   string `json:"kind"`
		Name   string `json:"name"`
		DType  string `json:"dtype"`
		Shape  []int  `json:"shape"`
		Offset int    `json:"offset"` // in bytes
	}
)

func decode(index []byte, open func(name string) ([]byte, error)) (*Golden, error) {
	var f fileIndex
	if err := json.Unmarshal(index, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", IndexName, err)
	}
	if f.Format != format || f.Version != version {
		return nil, fmt.Errorf("%s: %q version %d, want %q version %d", IndexName, f.Format, f.Version, format, version)
	}
	if f.Blob == "" || f.Blob != filepath.Base(f.Blob) || !filepath.IsLocal(f.Blob) {
		return nil, fmt.Errorf("%s: blob %q is not the name of a file beside it", IndexName, f.Blob)
	}
	blob, err := open(f.Blob)
	if err != nil {
		return nil, err
	}
	if len(blob) != f.BlobBytes {
		return nil, fmt.Errorf("%s: %d bytes, the index says %d", f.Blob, len(blob), f.BlobBytes)
	}
	if sum := sha256.Sum256(blob); hex.EncodeToString(sum[:]) != f.BlobSHA256 {
		return nil, fmt.Errorf("%s: sha256 %x, the index says %s", f.Blob, sum, f.BlobSHA256)
	}

	g := &Golden{Model: f.Model, Seed: f.Seed, MadeWith: f.MadeWith, Net: f.Net, Hyper: f.Hyper}
	if err := g.shared(f.Tensors, blob); err != nil {
		return nil, err
	}
	for _, fc := range f.Cases {
		c, err := fc.decode(blob, f.Net.Steps)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", fc.Name, err)
		}
		if g.Case(c.Name) != nil {
			return nil, fmt.Errorf("case %q: listed twice", c.Name)
		}
		g.Cases = append(g.Cases, c)
	}
	return g, nil
}

// shared fills in what all cases start from: weights, images and labels.
func (g *Golden) shared(entries []fileEntry, blob []byte) error {
	seen := map[string]bool{}
	for _, e := range entries {
		raw, err := e.bytes(blob, seen)
		if err != nil {
			return err
		}
		switch {
		case e.Kind == "initial" && e.DType == "f32":
			t, err := e.floats(raw)
			if err != nil {
				return err
			}
			g.Initial = append(g.Initial, t)
		case e.Kind == "images" && e.DType == "u8":
			if !slices.Equal(e.Shape, []int{g.Net.Batch, g.Net.Side, g.Net.Side, 3}) {
				return fmt.Errorf("%s: shape %v", e.label(), e.Shape)
			}
			if want := fmt.Sprintf("step%d", len(g.Images)+1); e.Name != want {
				return fmt.Errorf("%s: want %s here", e.label(), want)
			}
			g.Images = append(g.Images, slices.Clone(raw))
		case e.Kind == "labels" && e.DType == "i32":
			if !slices.Equal(e.Shape, []int{g.Net.Batch}) {
				return fmt.Errorf("%s: shape %v", e.label(), e.Shape)
			}
			if want := fmt.Sprintf("step%d", len(g.Labels)+1); e.Name != want {
				return fmt.Errorf("%s: want %s here", e.label(), want)
			}
			labels := make([]int32, g.Net.Batch)
			for i := range labels {
				labels[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
				if labels[i] < 0 || int(labels[i]) >= g.Net.Classes {
					return fmt.Errorf("%s: label %d of %d classes", e.label(), labels[i], g.Net.Classes)
				}
			}
			g.Labels = append(g.Labels, labels)
		default:
			return fmt.Errorf("%s: kind %q of type %q is not known", e.label(), e.Kind, e.DType)
		}
	}
	if len(g.Images) != g.Net.Steps || len(g.Labels) != g.Net.Steps {
		return fmt.Errorf("images of %d and labels of %d steps, want %d", len(g.Images), len(g.Labels), g.Net.Steps)
	}
	return nil
}

func (fc fileCase) decode(blob []byte, steps int) (Case, error) {
	c := Case{
		Name: fc.Name, Optimizer: workloads.Optimizer(fc.Optimizer), Precision: workloads.Precision(fc.Precision),
		LearningRates: fc.LearningRates, MadeBy: fc.MadeBy,
	}
	switch c.Precision {
	case workloads.FP32, workloads.AMP:
	default:
		return c, fmt.Errorf("precision %q is not known", c.Precision)
	}
	switch c.Optimizer {
	case workloads.SGD, workloads.Nesterov, workloads.LARS:
	default:
		return c, fmt.Errorf("optimizer %q is not known", c.Optimizer)
	}
	if len(c.LearningRates) != steps {
		return c, fmt.Errorf("%d learning rates for %d steps", len(c.LearningRates), steps)
	}
	last := 0
	for _, fs := range fc.Steps {
		if fs.Step <= last || fs.Step > steps {
			return c, fmt.Errorf("step %d after step %d of %d", fs.Step, last, steps)
		}
		last = fs.Step
		s := Step{Step: fs.Step}
		seen := map[string]bool{}
		for _, e := range fs.Tensors {
			raw, err := e.bytes(blob, seen)
			if err != nil {
				return c, fmt.Errorf("step %d: %w", fs.Step, err)
			}
			if e.DType != "f32" {
				return c, fmt.Errorf("step %d: %s: type %q, want f32", fs.Step, e.label(), e.DType)
			}
			t, err := e.floats(raw)
			if err != nil {
				return c, fmt.Errorf("step %d: %w", fs.Step, err)
			}
			s.Tensors = append(s.Tensors, t)
		}
		c.Steps = append(c.Steps, s)
	}
	return c, nil
}

func (e fileEntry) label() string { return e.Kind + " " + e.Name }

// bytes returns the entry's part of the blob.
func (e fileEntry) bytes(blob []byte, seen map[string]bool) ([]byte, error) {
	if seen[e.label()] {
		return nil, fmt.Errorf("%s: listed twice", e.label())
	}
	seen[e.label()] = true
	n, ok := map[string]int{"f32": 4, "i32": 4, "u8": 1}[e.DType]
	if !ok {
		return nil, fmt.Errorf("%s: type %q is not known", e.label(), e.DType)
	}
	for _, d := range e.Shape {
		if d < 1 || d > len(blob)/n { // also keeps the product from overflowing
			return nil, fmt.Errorf("%s: shape %v does not fit", e.label(), e.Shape)
		}
		n *= d
	}
	if e.Offset < 0 || n > len(blob) || e.Offset > len(blob)-n {
		return nil, fmt.Errorf("%s: %d bytes at %d are outside the blob's %d", e.label(), n, e.Offset, len(blob))
	}
	return blob[e.Offset : e.Offset+n], nil
}

func (e fileEntry) floats(raw []byte) (Tensor, error) {
	t := Tensor{Kind: e.Kind, Name: e.Name, Shape: e.Shape, Data: make([]float32, len(raw)/4)}
	for i := range t.Data {
		t.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		if v := float64(t.Data[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return t, fmt.Errorf("%s: element %d: %w", e.label(), i, errNotFinite)
		}
	}
	return t, nil
}

var errNotFinite = errors.New("not finite")
