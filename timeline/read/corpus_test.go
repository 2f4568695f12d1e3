package read_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// corpus is the folder of public traces that TRBENCH_CORPUS names. Unset, the
// tests that need it are skipped; set to what cannot be read, they fail.
func corpus(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TRBENCH_CORPUS")
	if dir == "" {
		t.Skip("TRBENCH_CORPUS names no folder of public traces")
	}
	if _, err := os.ReadDir(dir); err != nil {
		t.Fatalf("TRBENCH_CORPUS: %v", err)
	}
	return dir
}

// figures are those of a device under the names of expected.json.
func figures(x *timeline.Index, device int32) map[string]int64 {
	f, ok := x.SpanFigures(device)
	if !ok {
		return nil
	}
	return map[string]int64{
		"ops": int64(f.Ops), "linked_ops": int64(f.Linked), "unlinked_ops": int64(f.Unlinked()), "zero_duration_ops": int64(f.ZeroOps),
		"span_ns": f.SpanNs, "busy_ns": f.BusyNs, "idle_ns": f.IdleNs, "gaps": int64(f.Gaps),
		"host_late_ns": f.Split.HostLateNs, "in_api_ns": f.Split.InAPINs, "after_api_ns": f.Split.AfterAPINs, "unlinked_ns": f.Split.UnlinkedNs,
		"max_ops_per_launch": int64(x.Integrity(device).MaxOpsPerLaunch),
	}
}

// TestExpected compares every figure of expected.json, which another program
// computed in exact decimals, to the nanosecond.
func TestExpected(t *testing.T) {
	dir := corpus(t)
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]map[string]map[string]int64
	if err := json.Unmarshal(b, &files); err != nil {
		t.Fatal(err)
	}
	if len(files) < 17 {
		t.Errorf("expected.json has %d files", len(files))
	}
	for name, devices := range files {
		t.Run(name, func(t *testing.T) {
			tl, err := read.File(filepath.Join(dir, name), read.Options{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			if read.Damaged(tl.Read) {
				t.Errorf("damaged: %+v", tl.Read)
			}
			x := timeline.NewIndex(tl)
			var seen []string
			for d := range tl.Devices {
				id := tl.Devices[d].ID
				seen = append(seen, id)
				got := figures(x, int32(d))
				for figure, want := range devices[id] {
					if v, ok := got[figure]; !ok || v != want {
						t.Errorf("device %s: %s is %d, want %d", id, figure, v, want)
					}
				}
			}
			slices.Sort(seen)
			var want []string
			for id := range devices {
				want = append(want, id)
			}
			slices.Sort(want)
			if !slices.Equal(seen, want) {
				t.Errorf("devices are %v, want %v", seen, want)
			}
		})
	}
}
