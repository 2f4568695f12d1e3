package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg/draw"

	"github.com/tech-renaissance/trbench/results"
)

// Peer is what another program printed of the same training step, one turn of it:
// a line of JSON. Times are of the host's clock.
type Peer struct {
	Name    string // "pytorch"
	Version string
	// Workload, Batch and Precision are as in a cell's key, on one GPU.
	Workload  string
	Batch     int
	Precision string
	// Mode is its own word: "eager", "graph", "cgraph".
	Mode   string
	StepNs float64
	// SubmitNs is the host's time to submit a step to an idle device, and Kernels
	// its kernels, copies and fills; 0 where it does not say.
	SubmitNs float64
	Kernels  int
}

// PeerError is a file of a peer's results that cannot be used.
type PeerError struct {
	File    string
	Line    int // 0 for the file as a whole
	Problem string
}

func (e *PeerError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: line %d %s", e.File, e.Line, e.Problem)
	}
	return e.File + ": " + e.Problem
}

// Of a peer's file: far above what any prints.
const (
	maxPeerLine  = 1 << 20
	maxPeerLines = 10_000
	maxPeerMs    = 1e9
	peerSuffix   = ".jsonl"
)

// ReadPeers reads a file of JSON lines, or all of a folder whose names end in
// .jsonl. The error is a [*PeerError].
func ReadPeers(path string) ([]Peer, error) {
	problem := func(err error) error {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return &PeerError{File: path, Problem: "cannot be read: " + err.Error()}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, problem(err)
	}
	files := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, problem(err)
		}
		files = nil
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), peerSuffix) {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == 0 {
			return nil, &PeerError{File: path, Problem: "holds no file that ends in " + peerSuffix}
		}
	}
	var out []Peer
	for _, f := range files {
		in, err := os.Open(f)
		if err != nil {
			return nil, problem(err)
		}
		list, err := decodePeers(f, in)
		in.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

func decodePeers(file string, in io.Reader) ([]Peer, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxPeerLine)
	var out []Peer
	n := 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		p, err := decodePeer(lines.Bytes())
		if err != nil {
			return nil, &PeerError{file, n, err.Error()}
		}
		if out = append(out, p); len(out) > maxPeerLines {
			return nil, &PeerError{file, n, fmt.Sprintf("is one too many: %d are read at most", maxPeerLines)}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &PeerError{file, n + 1, fmt.Sprintf("is longer than %d bytes", maxPeerLine)}
	case err != nil:
		return nil, &PeerError{File: file, Problem: "cannot be read: " + err.Error()}
	case len(out) == 0:
		return nil, &PeerError{File: file, Problem: "has no result in it"}
	}
	return out, nil
}

// decodePeer reads a line. The error continues a sentence about it.
func decodePeer(b []byte) (Peer, error) {
	var l struct {
		Peer      string   `json:"peer"`
		Version   string   `json:"version"`
		Model     string   `json:"model"`
		Batch     int      `json:"batch"`
		Precision string   `json:"precision"`
		Mode      string   `json:"mode"`
		StepMs    *float64 `json:"step_ms"`
		SubmitMs  float64  `json:"submit_ms"`
		Kernels   int      `json:"kernels"`
	}
	if err := json.Unmarshal(b, &l); err != nil {
		var t *json.UnmarshalTypeError
		if errors.As(err, &t) && t.Field != "" {
			return Peer{}, fmt.Errorf("has a %s in %s", t.Value, t.Field)
		}
		return Peer{}, errors.New("is no JSON object")
	}
	for _, w := range []struct{ name, value string }{{"peer", l.Peer}, {"model", l.Model}, {"precision", l.Precision}, {"mode", l.Mode}} {
		if w.value == "" {
			return Peer{}, fmt.Errorf("lacks %s", w.name)
		}
	}
	switch {
	case l.StepMs == nil:
		return Peer{}, errors.New("lacks step_ms")
	case !(*l.StepMs > 0 && *l.StepMs <= maxPeerMs):
		return Peer{}, fmt.Errorf("has step_ms %v, which is no step's time", *l.StepMs)
	case !(l.SubmitMs >= 0 && l.SubmitMs <= maxPeerMs):
		return Peer{}, fmt.Errorf("has submit_ms %v, which is no submission's time", l.SubmitMs)
	case l.Batch < 1:
		return Peer{}, fmt.Errorf("has batch %d", l.Batch)
	case l.Kernels < 0:
		return Peer{}, fmt.Errorf("has kernels %d", l.Kernels)
	}
	return Peer{Name: l.Peer, Version: l.Version, Workload: l.Model, Batch: l.Batch, Precision: l.Precision, Mode: l.Mode,
		StepNs: *l.StepMs * 1e6, SubmitNs: l.SubmitMs * 1e6, Kernels: l.Kernels}, nil
}

// peerPoint is what all turns of one thing say: medians.
type peerPoint struct {
	Peer
	turns int
}

// perKernelNs is the host's time a kernel; 0 if it is not known.
func (p peerPoint) perKernelNs() float64 {
	if p.Kernels == 0 {
		return 0
	}
	return p.SubmitNs / float64(p.Kernels)
}

// label names the peer in a sentence.
func (p peerPoint) label() string { return strings.TrimSpace(plain(p.Name) + " " + plain(p.Version)) }

// peerPoints are a cell's, by mode in the order of their first line.
func peerPoints(peers []Peer, k results.CellKey) []peerPoint {
	type kind struct{ name, version, mode string }
	var order []kind
	turns := map[kind][]Peer{}
	if k.GPUs != 1 || k.Device == "cpu" {
		return nil
	}
	for _, p := range peers {
		if p.Workload != k.Workload || p.Batch != k.Batch || p.Precision != k.Precision {
			continue
		}
		at := kind{p.Name, p.Version, p.Mode}
		if turns[at] == nil {
			order = append(order, at)
		}
		turns[at] = append(turns[at], p)
	}
	var out []peerPoint
	for _, at := range order {
		all := turns[at]
		median := func(of func(Peer) float64) float64 {
			values := make([]float64, len(all))
			for i, p := range all {
				values[i] = of(p)
			}
			return results.Median(values)
		}
		p := peerPoint{all[0], len(all)}
		p.StepNs, p.SubmitNs = median(func(p Peer) float64 { return p.StepNs }), median(func(p Peer) float64 { return p.SubmitNs })
		p.Kernels = int(median(func(p Peer) float64 { return float64(p.Kernels) }))
		out = append(out, p)
	}
	return out
}

// peerEager is the peer's word for a step that the host launches op by op.
const peerEager = "eager"

// fastest is the configuration of the least step time, eager ones or captured.
func fastest(c *results.Cell, eager bool) *results.Configuration {
	if eager {
		return eagerBase(c, "device")
	}
	return bestCaptured(c)
}

// PeersFit says that some of the peers' results are of a cell in the records, so
// that a report can set them beside it. Cells of a CPU and of several GPUs are no
// peer's.
func PeersFit(peers []Peer, records []Named) bool {
	for _, r := range records {
		if r.Record == nil {
			continue
		}
		for i := range r.Record.Cells {
			if len(peerPoints(peers, r.Record.Cells[i].Key)) > 0 {
				return true
			}
		}
	}
	return false
}

// peerTable sets peers' steps beside those of the same cells.
func (s sources) peerTable() Section {
	g, cols := s.comparison("peer", "its mode", "turns", "its step", "submit", "kernels", "host a kernel", "beside", "step", "over its")
	g.Left = len(g.Header) - 8
	used := map[string]bool{}
	for cell, src := range s.cells {
		if !cell.Verify.Equal {
			continue
		}
		for _, p := range peerPoints(s.peers, cell.Key) {
			own := fastest(cell, p.Mode == peerEager)
			if own == nil {
				continue
			}
			f, ok := figureOf(own, results.StepTimeNs)
			if !ok {
				continue
			}
			used[fmt.Sprint(p.Workload, p.Batch, p.Precision)] = true
			submit, kernels, each := "-", "-", "-"
			if p.SubmitNs > 0 {
				submit = Duration(p.SubmitNs)
			}
			if p.Kernels > 0 {
				kernels, each = strconv.Itoa(p.Kernels), Duration(p.perKernelNs())
			}
			g.Rows = append(g.Rows, append(keys(src, cell, cols), p.label(), plain(p.Mode), strconv.Itoa(p.turns), Duration(p.StepNs), submit, kernels, each,
				name(own.Key), Duration(f.value), factor(f.value/p.StepNs)))
		}
	}
	if len(g.Rows) == 0 {
		return Section{}
	}
	lines := []string{"Of a peer the median over turns, of the record the median over processes; an eager step stands beside an eager one, any other beside the fastest captured one. They are not paired here, so there is no interval."}
	var left []string
	for _, p := range s.peers {
		at := fmt.Sprint(p.Workload, p.Batch, p.Precision)
		if word := fmt.Sprintf("%s batch %d %s", plain(p.Workload), p.Batch, plain(p.Precision)); !used[at] && !slices.Contains(left, word) {
			left = append(left, word)
		}
	}
	if len(left) > 0 {
		lines = append(lines, "Of the peers' results no cell is here for "+strings.Join(left, ", ")+".")
	}
	return Section{"Beside others", g, lines}
}

// peerSpeedUps are points for the plot of dispatch: a peer's own speed-up, its
// eager step over its fastest captured one, where its host takes for a kernel what
// ours would with the time added. It notes how they were made.
func (p *Picture) peerSpeedUps(peers []Peer, cells []*results.Cell) []series {
	var out []series
	for _, c := range cells {
		base := eagerBase(c, "device")
		if base == nil {
			continue
		}
		own, ok := figureOf(base, results.LaunchCostNs)
		if !ok {
			continue
		}
		var eager, best *peerPoint
		points := peerPoints(peers, c.Key)
		for i := range points {
			q := &points[i]
			switch {
			case q.Mode == peerEager:
				eager = q
			case strings.HasSuffix(q.Mode, "graph") && (best == nil || q.StepNs < best.StepNs):
				best = q
			}
		}
		if eager == nil || best == nil || eager.perKernelNs() == 0 {
			continue
		}
		x, ratio := eager.perKernelNs()-own.value, eager.StepNs/best.StepNs
		if x < 0 || !drawable(ratio) {
			p.Notes = append(p.Notes, fmt.Sprintf("%s at batch %d is not drawn: it takes its host less for a kernel than ours for a launch.", eager.label(), c.Key.Batch))
			continue
		}
		out = append(out, series{label: fmt.Sprintf("%s, batch %d", plain(eager.Name), c.Key.Batch), look: look{color: ink, glyph: draw.BoxGlyph{}},
			points: []point{pointOf(x, figure{value: ratio}, 1)}})
		p.Notes = append(p.Notes, fmt.Sprintf("%s, batch %d: its own eager step (%s) over its own captured one (%s, %s). Its host takes %s a kernel (%s over %d kernels); ours takes %s a launch, so it stands at the difference, %s. Median of %s, no interval.",
			eager.label(), c.Key.Batch, Duration(eager.StepNs), plain(best.Mode), Duration(best.StepNs), Duration(eager.perKernelNs()), Duration(eager.SubmitNs), eager.Kernels,
			Duration(own.value), Duration(x), CountWord(min(eager.turns, best.turns), "turn")))
	}
	return out
}
