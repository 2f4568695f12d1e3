package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func record(device string, batches ...int) *results.Record {
	r := &results.Record{}
	for _, b := range batches {
		k := results.DefaultCellKey()
		k.Workload, k.Batch, k.Device = "resnet20-cifar", b, device
		cell := results.Cell{Key: k, Verify: results.Verify{Equal: true, Tensors: 120, Bytes: 3 << 20, Steps: 4}}
		for i, mode := range []string{"eager", "graph", "step"} {
			key := results.DefaultConfigurationKey()
			key.Mode = mode
			c := results.Configuration{Key: key, Metrics: []results.Metric{
				results.NewMetric(results.StepTimeNs, []results.Sample{{Value: 1.2345e8 * float64(b)}}),
				results.NewMetric(results.SubmitTimeNs, []results.Sample{{Value: 98765 / float64(1+i)}}),
				results.NewMetric(results.SyncWaitNs, []results.Sample{{Value: 0}}),
				results.NewMetric(results.ImagesPerS, []results.Sample{{Value: 8.1}}),
			}}
			if mode != "step" {
				c.Counts.Launches.Host = results.Count(int64(300 - 280*i))
			}
			cell.Configurations = append(cell.Configurations, c)
		}
		r.Cells = append(r.Cells, cell)
	}
	return r
}

func TestTable(t *testing.T) {
	varied := record("cuda", 16, 64)
	varied.Cells[1].Key.Precision = "amp"
	varied.Cells[1].Warnings = []results.Warning{{Code: "clocks", Text: "the two clocks differ by 4 %"}}
	unequal := record("cpu", 1)
	unequal.Cells[0].Verify.Equal = false
	for name, r := range map[string]*results.Record{
		"cpu": record("cpu", 1, 2), "varied": varied, "unequal": unequal, "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := Table(&got, r); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "table_"+name+".txt")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("got\n%s\nwant\n%s", got.Bytes(), want)
			}
		})
	}
}

func TestUnits(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Duration(0), "0 ns"}, {Duration(999), "999 ns"}, {Duration(999.6), "1.00 us"}, {Duration(1234567), "1.23 ms"},
		{Duration(99960), "100 us"}, {Duration(12.3e9), "12.3 s"}, {Duration(-2500), "-2.50 us"},
		{Bytes(0), "0 B"}, {Bytes(1023), "1.00 KiB"}, {Bytes(1536), "1.50 KiB"}, {Bytes(3 << 30), "3.00 GiB"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
