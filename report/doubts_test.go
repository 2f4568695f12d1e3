package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

func tableOf(t *testing.T, records ...Named) string {
	t.Helper()
	var b bytes.Buffer
	if err := Tables(&b, records); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func warningLines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Warning") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// A kind of doubt is a line, with the cells it is about; what a machine is
// comes last; the long form has every text.
func TestWarningsFold(t *testing.T) {
	r := record("cuda", 1, 2, 4)
	r.Warnings = []results.Warning{{Code: "virtual_machine", Text: "this is a virtual machine"}, {Code: "boost", Text: "boost is on"}, {Code: "load", Text: "busy"}}
	for i, text := range []string{"a by 10 %", "a by 17 %", "a by 27 %"} {
		r.Cells[i].Warnings = []results.Warning{{Code: "processes_differ", Text: text}, {Code: "few", Text: "too few"}}
	}
	r.Cells[2].Key.GPUs = 2
	got := warningLines(tableOf(t, Named{Name: "a.json", Record: r}))
	want := []string{
		"Warning: busy [load]",
		"Warning (resnet20-cifar batch 1, 2 gpus 1; resnet20-cifar batch 4 gpus 2): a by 10 % (and 2 more like it in the record) [processes_differ]",
		"Warning (resnet20-cifar batch 1, 2 gpus 1; resnet20-cifar batch 4 gpus 2): too few [few]",
		"Warning: this is a virtual machine [virtual_machine]",
		"Warning: boost is on [boost]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = warningLines(tableOf(t, Named{Name: "a.json", Record: r}, Named{Name: "b.json", Record: r}))
	if len(got) != 5 || got[0] != "Warning (a.json; b.json): busy [load]" || !strings.HasPrefix(got[1], "Warning (a.json: resnet20-cifar batch 1, 2 gpus 1; a.json: ") {
		t.Errorf("of two records\n%s", strings.Join(got, "\n"))
	}
	var long bytes.Buffer
	if err := CSV(&long, []Named{{Name: "a.json", Record: r}}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a by 10 %", "a by 17 %", "a by 27 %"} {
		if !strings.Contains(long.String(), text) {
			t.Errorf("the long form lacks %q", text)
		}
	}
}

// On a CPU a ratio is not called a speed-up.
func TestRatiosOfCPU(t *testing.T) {
	for device, want := range map[string]string{"cpu": "method, not the gain\nworkload", "cuda": "above 1, other is faster\nworkload"} {
		r := record(device, 1)
		c := &r.Cells[0]
		c.Ratios = []results.Ratio{{Metric: results.StepTimeNs, Base: c.Configurations[0].Key, Other: c.Configurations[1].Key, Value: 1.1}}
		got := tableOf(t, Named{Record: r})
		if !strings.Contains(got, want) || strings.Contains(got, "speed-up") != (device == "cuda") {
			t.Errorf("%s:\n%s", device, got)
		}
	}
}

// The table says what was compared, and does not say more.
func TestEvidence(t *testing.T) {
	for want, modes := range map[string][]string{
		"Before timing, all modes of each cell left the same bits: up to 120":                                       {"eager/event/device", "graph/event/device"},
		"Before timing, eager/event/device repeated itself bit for bit; there was no other mode to compare it with": {"eager/event/device", "eager/event/device"},
		"One mode alone was run, and compared with nothing (resnet20-cifar batch 1 gpus 1).":                        {"eager/event/device"},
	} {
		r := record("cuda", 1)
		r.Cells[0].Verify.Modes = modes
		if got := tableOf(t, Named{Record: r}); strings.Count(got, "left the same bits")+strings.Count(got, "repeated itself")+strings.Count(got, "compared with nothing") != 1 ||
			!strings.Contains(got, want) {
			t.Errorf("of %v:\n%s", modes, got)
		}
	}
}

// Launch overhead has a column where it was measured.
func TestLaunchOverheadColumn(t *testing.T) {
	r := record("cuda", 1)
	if got := tableOf(t, Named{Record: r}); strings.Contains(got, "overhead") {
		t.Errorf("without:\n%s", got)
	}
	c := &r.Cells[0].Configurations[0]
	c.Metrics = append(c.Metrics, results.NewMetric(results.LaunchOverheadNs, []results.Sample{{Value: 1.5e6}}))
	if got := tableOf(t, Named{Record: r}); !strings.Contains(got, "launch overhead") || !strings.Contains(got, "1.50 ms") {
		t.Errorf("with:\n%s", got)
	}
	pictures, _ := gather([]Named{{Name: "a.json", Record: r}}).all()
	if !slices.ContainsFunc(pictures, func(p Picture) bool {
		return strings.Contains(strings.Join(p.Subtitle, " "), "Launch overhead: ")
	}) {
		t.Error("no plot shows it")
	}
}

// A row of a last batch says that it is one, and of how many images.
func TestLastBatchColumns(t *testing.T) {
	r := record("cuda", 4)
	if got := tableOf(t, Named{Record: r}); strings.Contains(got, "variant") || strings.Contains(got, "last batch") {
		t.Errorf("of a full batch:\n%s", got)
	}
	r.Cells[0].Key.Variant, r.Cells[0].Key.LastBatch = 3, results.LastBatch{Train: 2, Val: 1}
	head := strings.Split(tableOf(t, Named{Record: r}), "\n")
	if !strings.Contains(head[0], "gpus  variant  last batch  mode") || !strings.HasPrefix(strings.Join(strings.Fields(head[2]), " "), "resnet20-cifar 4 1 3 2 eager") {
		t.Errorf("of a last batch:\n%s", strings.Join(head[:3], "\n"))
	}
}
