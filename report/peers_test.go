package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

const goodPeer = `{"step_ms": 30, "submit_ms": 18, "kernels": 720, "peer": "pytorch", "version": "2.11", "model": "resnet50", "batch": 16, "precision": "fp32", "mode": "eager", "busy_ms": 4.5, "more": [1]}`

func TestReadPeers(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := strings.Replace(goodPeer, `"step_ms": 30`, `"step_ms": 31`, 1)
	file := write("a.jsonl", goodPeer+"\n\n"+other+"\n")
	got, err := ReadPeers(file)
	if want := (Peer{"pytorch", "2.11", "resnet50", 16, "fp32", "eager", 30e6, 18e6, 720}); err != nil || len(got) != 2 || got[0] != want || got[1].StepNs != 31e6 {
		t.Errorf("%+v, %v", got, err)
	}
	write("b.jsonl", goodPeer)
	write("c.txt", "no result")
	if got, err := ReadPeers(dir); err != nil || len(got) != 3 {
		t.Errorf("a folder: %+v, %v", got, err)
	}
	less := strings.Replace(strings.Replace(goodPeer, `"submit_ms": 18, `, "", 1), `"kernels": 720, `, "", 1)
	if got, err := ReadPeers(write("less.txt", less)); err != nil || got[0].SubmitNs != 0 || got[0].Kernels != 0 {
		t.Errorf("what it need not say: %+v, %v", got, err)
	}
	change := func(from, to string) string {
		t.Helper()
		if !strings.Contains(goodPeer, from) {
			t.Fatal(from)
		}
		return strings.Replace(goodPeer, from, to, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", ": has no result in it"},
		{"blank", "\n \n", ": has no result in it"},
		{"no JSON", goodPeer + "\nstep 3\n", ": line 2 is no JSON object"},
		{"NaN", change("30", "NaN"), ": line 1 is no JSON object"},
		{"cut", goodPeer[:40], ": line 1 is no JSON object"},
		{"two on a line", goodPeer + goodPeer, ": line 1 is no JSON object"},
		{"a list", "[1]", ": line 1 is no JSON object"},
		{"a word for a time", change("30", `"fast"`), ": line 1 has a string in step_ms"},
		{"half a batch", change(`"batch": 16`, `"batch": 16.5`), ": line 1 has a number 16.5 in batch"},
		{"no step", change(`"step_ms": 30, `, ""), ": line 1 lacks step_ms"},
		{"no mode", change(`"mode": "eager", `, ""), ": line 1 lacks mode"},
		{"no model", change(`"resnet50"`, `""`), ": line 1 lacks model"},
		{"negative", change("30", "-30"), ": line 1 has step_ms -30, which is no step's time"},
		{"nothing", change("30", "0"), ": line 1 has step_ms 0, which is no step's time"},
		{"endless", change("30", "1e300"), ": line 1 has step_ms 1e+300"},
		{"negative submission", change("18", "-1"), ": line 1 has submit_ms -1"},
		{"batch 0", change(`"batch": 16`, `"batch": 0`), ": line 1 has batch 0"},
		{"negative kernels", change("720", "-720"), ": line 1 has kernels -720"},
		{"long", `{"x":"` + strings.Repeat("x", maxPeerLine) + `"}`, ": line 1 is longer than 1048576 bytes"},
		{"many", strings.Repeat(goodPeer+"\n", maxPeerLines+1), ": line 10001 is one too many: 10000 are read at most"},
	} {
		file := write("bad", c.text)
		_, err := ReadPeers(file)
		var p *PeerError
		if !errors.As(err, &p) || !strings.HasPrefix(err.Error(), file+c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := ReadPeers(filepath.Join(dir, "none")); err == nil || !strings.HasSuffix(err.Error(), "cannot be read: no such file or directory") {
		t.Errorf("no file: %v", err)
	}
	if _, err := ReadPeers(t.TempDir()); err == nil || !strings.HasSuffix(err.Error(), "holds no file that ends in .jsonl") {
		t.Errorf("an empty folder: %v", err)
	}
}

func FuzzReadPeers(f *testing.F) {
	f.Add([]byte(goodPeer))
	f.Add([]byte("{}\n[]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodePeers("f", strings.NewReader(string(b)))
		if (err == nil) == (len(list) == 0) {
			t.Fatalf("%d results, %v", len(list), err)
		}
		for _, p := range list {
			if !(p.StepNs > 0) || p.Batch < 1 || p.SubmitNs < 0 || p.Kernels < 0 {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// beside is a record with a sweep of dispatch, and a peer's results: an eager step
// of 20 ms, of which the host takes 8 us for each of 1000 kernels, and captured
// ones of 5 and 4 ms.
func beside() Named {
	r := sweepPart("resnet50", 224, 16)
	eager, step := &r.Cells[0].Configurations[0], &r.Cells[0].Configurations[2]
	eager.Metrics = append(eager.Metrics, results.NewMetric(results.LaunchCostNs, []results.Sample{{Value: 3000}}))
	slow := *eager
	slow.Key.DispatchNs = 20_000
	step.Key.Sync = "inside"
	step.Metrics = []results.Metric{results.NewMetric(results.StepTimeNs, []results.Sample{{Value: 3e6}})}
	r.Cells[0].Configurations = []results.Configuration{*eager, slow, *step}
	line := func(mode string, stepMs, submitMs float64) Peer {
		return Peer{"pytorch", "2.11", "resnet50", 16, "fp32", mode, stepMs * 1e6, submitMs * 1e6, 1000}
	}
	return Named{Name: "r", Record: r, Peers: []Peer{line("eager", 19, 9), line("eager", 20, 8), line("eager", 21, 7), line("graph", 5, 1), line("cgraph", 4, 1),
		{"pytorch", "2.11", "resnet50", 64, "fp32", "eager", 1e6, 0, 0}, {"pytorch", "2.11", "resnet50", 16, "amp", "eager", 1e6, 0, 0}}}
}

func TestPeerTable(t *testing.T) {
	var b strings.Builder
	if _, err := Selected(&b, FormatMarkdown, []Named{beside()}, []string{"peers"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| resnet50 | 16 | 1 | pytorch 2.11 | eager | 3 | 20.0 ms | 8.00 ms | 1000 | 8.00 us | eager/event/device | 1.98 s | 98.8 |",
		"| resnet50 | 16 | 1 | pytorch 2.11 | cgraph | 1 | 4.00 ms | 1.00 ms | 1000 | 1.00 us | step/inside/device | 3.00 ms | 0.750 |",
		"Of the peers' results no cell is here for resnet50 batch 64 fp32, resnet50 batch 16 amp.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in\n%s", want, b.String())
		}
	}
	c, err := Collect([]Named{beside()})
	if err != nil || !strings.Contains(fmt.Sprint(c.Tables), "Beside others") {
		t.Errorf("a page has no peers: %v", err)
	}
	n := beside()
	n.Record.Cells[0].Verify.Equal = false
	if empty, err := Selected(&b, FormatTable, []Named{n}, []string{"peers"}); err != nil || len(empty) != 1 {
		t.Errorf("beside modes that differ: %q, %v", empty, err)
	}
}

// A peer stands on the plot of host speed where its host takes for a kernel what
// ours would take for a launch with the time added.
func TestPeerOnDispatch(t *testing.T) {
	pictures, absent := Draw(Dispatch, []Named{beside()})
	if len(pictures) != 1 {
		t.Fatal(absent)
	}
	p := pictures[0]
	series := p.Chart().Lines.Series
	last := series[len(series)-1]
	if last.Label != "pytorch, batch 16" || len(last.Points) != 1 || last.Points[0].X != 5 || last.Points[0].Y != 5 {
		t.Errorf("%+v", last)
	}
	want := "pytorch 2.11, batch 16: its own eager step (20.0 ms) over its own captured one (cgraph, 4.00 ms). Its host takes 8.00 us a kernel (8.00 ms over 1000 kernels); ours takes 3.00 us a launch, so it stands at the difference, 5.00 us. Median of 1 turn, no interval."
	if !strings.Contains(strings.Join(p.Notes, "\n"), want) {
		t.Errorf("notes %q", p.Notes)
	}
	var b strings.Builder
	if err := p.Encode(&b, SVG); err != nil || !strings.Contains(b.String(), "pytorch,\u00a0batch\u00a016") {
		t.Errorf("%v: the label is not drawn", err)
	}
	// Where its host is faster than ours there is no place for it, and a word why.
	n := beside()
	for i := range n.Peers {
		n.Peers[i].SubmitNs /= 10
	}
	pictures, _ = Draw(Dispatch, []Named{n})
	if got := pictures[0].Chart().Lines.Series; len(got) != len(series)-1 || !strings.Contains(strings.Join(pictures[0].Notes, "\n"), "pytorch 2.11 at batch 16 is not drawn: it takes its host less") {
		t.Errorf("%d series, notes %q", len(got), pictures[0].Notes)
	}
	// Without an eager or a captured result there is no speed-up of its own.
	for _, keep := range []string{"eager", "cgraph"} {
		n := beside()
		var list []Peer
		for _, q := range n.Peers {
			if q.Mode == keep {
				list = append(list, q)
			}
		}
		n.Peers = list
		if pictures, _ := Draw(Dispatch, []Named{n}); len(pictures[0].Chart().Lines.Series) != len(series)-1 {
			t.Errorf("%s alone is drawn", keep)
		}
	}
}
