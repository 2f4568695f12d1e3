package dnn

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrUnsupported says that neither library computes a node within the package's
// rule.
var ErrUnsupported = errors.New("the libraries do not support the operator")

// ErrStale says that a choice was made under another version of its library.
var ErrStale = errors.New("the choice was made under another library version")

// Names of the libraries in a choice.
const (
	CuDNN    = "cudnn"
	CuBLASLt = "cublaslt"
)

// Knob is an engine's parameter: a cudnnBackendKnobType_t and its value.
type Knob struct {
	Type  int32 `json:"type"`
	Value int64 `json:"value"`
}

// Choice is one way to compute a node, as data.
type Choice struct {
	Library string `json:"library"`
	// Version is the library's, as it counts itself. A choice is good for it
	// alone.
	Version int `json:"version"`
	// Engine is cuDNN's global engine index or cuBLASLt's algorithm id.
	Engine int64 `json:"engine"`
	// Knobs are the engine's, by type.
	Knobs []Knob `json:"knobs,omitempty"`
	// Algorithm is cuBLASLt's.
	Algorithm *Algorithm `json:"algorithm,omitempty"`
	// Notes are what the library says of it: "tensor_core",
	// "runtime_compilation".
	Notes []string `json:"notes,omitempty"`
	// Workspace is what it needs, in bytes: the library's forecast in a
	// candidate, the plan's own figure in [Plan.Choice].
	Workspace int64 `json:"workspace_bytes"`
}

// Algorithm is a cuBLASLt algorithm in the library's own words.
type Algorithm struct {
	Words   [8]Word `json:"words"`
	Compute int32   `json:"compute"`
}

// Word is 64 bits, hexadecimal in JSON because readers of JSON may keep
// numbers as float64.
type Word uint64

// MarshalText implements encoding.TextMarshaler.
func (w Word) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(w), 16), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Word) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	*w = Word(v)
	return err
}

// String is short and unique among a node's candidates: "cudnn 57 k2=3 k13=1".
func (c Choice) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", c.Library, c.Engine)
	for _, k := range c.Knobs {
		fmt.Fprintf(&b, " k%d=%d", k.Type, k.Value)
	}
	if a := c.Algorithm; a != nil {
		for _, w := range a.Words {
			fmt.Fprintf(&b, " %x", uint64(w))
		}
	}
	return b.String()
}

// ParseChoice reads a choice written by encoding/json.
func ParseChoice(b []byte) (Choice, error) {
	var c Choice
	if err := json.Unmarshal(b, &c); err != nil {
		return Choice{}, fmt.Errorf("plan choice: %w", err)
	}
	switch {
	case c.Library == CuDNN && c.Algorithm == nil:
	case c.Library == CuBLASLt && c.Algorithm != nil:
	default:
		return Choice{}, fmt.Errorf("plan choice: library %q with algorithm: %v", c.Library, c.Algorithm != nil)
	}
	if c.Workspace < 0 {
		return Choice{}, fmt.Errorf("plan choice: workspace of %d bytes", c.Workspace)
	}
	return c, nil
}

// Candidate is a choice and who proposed it.
type Candidate struct {
	Choice
	// Source is "mode_a", "mode_b" or "fallback" of cuDNN's heuristics, or
	// "heuristic" of cuBLASLt's; Rank the place there, from 0.
	Source string `json:"source"`
	Rank   int    `json:"rank"`
}

// Timing is what became of a candidate.
type Timing struct {
	Choice Choice
	// TimeNs is the time of one execution on the GPU. It has no meaning if Err
	// is set.
	TimeNs float64
	// Err says why it was not built or not timed.
	Err error
}

// tie is within how much of the best time another counts as as good.
const tie = 1.02

// best picks from timings: the shortest time, except that among those within
// 2 % of it the smallest workspace wins, then the lowest engine, then the order
// of knobs, so that noise alone rarely changes the choice. It returns -1 if
// nothing was timed.
func best(ts []Timing) int {
	shortest := math.Inf(1)
	for _, t := range ts {
		if t.Err == nil {
			shortest = min(shortest, t.TimeNs)
		}
	}
	at := -1
	for i, t := range ts {
		if t.Err != nil || t.TimeNs > shortest*tie {
			continue
		}
		if at < 0 || before(t.Choice, ts[at].Choice) {
			at = i
		}
	}
	return at
}

func before(a, b Choice) bool {
	return cmp.Or(
		cmp.Compare(a.Workspace, b.Workspace),
		cmp.Compare(a.Engine, b.Engine),
		slices.CompareFunc(a.Knobs, b.Knobs, func(x, y Knob) int {
			return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Value, y.Value))
		}),
		cmp.Compare(a.String(), b.String()),
	) < 0
}
