package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/internal/machine"
	"github.com/tech-renaissance/trbench/results"
)

// Each session of a run keeps how the machine was at its start and at its end,
// and what was hot or held down then is doubted, once.
func TestMoments(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	celsius, held := 40.0, ""
	session := func(engine Engine, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		seconds := int64(0)
		code := Main(&Env{
			Context: t.Context(), Stdout: &out, Stderr: &errs, Args: args, Getenv: func(string) string { return "" },
			WorkDir: dir, Now: func() time.Time { seconds++; return time.Unix(seconds, 0) }, Engine: engine,
			Readings: func(_ context.Context, device string) []results.Reading {
				celsius += 10
				list := []results.Reading{{Name: machine.GPUTemperature, Unit: "celsius", Value: celsius, N: 1}}
				if held != "" {
					list = append(list, results.Reading{Name: machine.GPUHeldPrefix + held, Unit: "count", Value: 1, N: 1})
				}
				if device != "cpu" {
					t.Errorf("asked for device %q", device)
				}
				return list
			},
		})
		if code != 0 {
			t.Fatal(code, errs.String())
		}
		return out.String()
	}
	moments := func() (list []string, warnings []string) {
		t.Helper()
		r, err := results.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range r.Environment.Moments {
			if m.Session != i/2 || len(m.Readings) == 0 || m.Time.IsZero() {
				t.Errorf("moment %d: %+v", i, m)
			}
			list = append(list, m.When)
		}
		for _, w := range r.Warnings {
			warnings = append(warnings, w.Code)
		}
		return list, warnings
	}
	// 50 at the start, 60 and 70 at each of two stores.
	session(fakeEngine(), "run", "--batch=2", "--processes=1", "--out=r.json")
	if list, warnings := moments(); strings.Join(list, " ") != "start end" || len(warnings) > 0 {
		t.Errorf("%v, %v", list, warnings)
	}
	if r, _ := results.ReadFile(file); r.Environment.Moments[0].Readings[0].Value != 50 || r.Environment.Moments[1].Readings[0].Value != 70 {
		t.Errorf("%+v", r.Environment.Moments)
	}
	// The same, interrupted and gone on with: one end a session, that of its last
	// process.
	celsius = 0
	session(fakeEngine(), "run", "--batch=2", "--out=r.json")
	interrupt(t, file)
	celsius, held = 60, "hw_thermal_slowdown"
	table := session(fakeEngine(), "run", "--resume=r.json")
	list, warnings := moments()
	if strings.Join(list, " ") != "start end start end" || strings.Join(warnings, " ") != "heat gpu_throttled_at_rest gpu_throttled_at_rest" {
		t.Errorf("%v, %v", list, warnings)
	}
	if !strings.Contains(table, "gpu was at 100 degrees Celsius at the end of session 2") {
		t.Errorf("the table does not warn:\n%s", table)
	}
}

// What a process reads under load is in its record, and doubted in its cell.
func TestReadingsUnderLoad(t *testing.T) {
	dir := t.TempDir()
	engine := fakeEngine()
	engine.RunCell = func(ctx context.Context, r bench.CellRequest) (*results.Cell, error) {
		c, err := fakeCell(ctx, r)
		if c != nil {
			c.Processes = []results.Process{{Readings: []results.Reading{{Name: machine.GPUClockHz, Unit: "Hz", Value: 1e9 + 1e8*float64(r.Process), N: 1}}}}
		}
		return c, err
	}
	code, stdout, stderr := invoke(t, t.Context(), engine, dir, "run", "--batch=2", "--out=r.json")
	if code != 0 || !strings.Contains(stdout, "the GPU's clock under load lay between 1000 and 1200 MHz in 3 processes") {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
	r, err := results.ReadFile(filepath.Join(dir, "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range r.Cells[0].Processes {
		if len(p.Readings) != 1 || p.Readings[0].Value != 1e9+1e8*float64(i) || p.Index != i {
			t.Errorf("process %d: %+v", i, p)
		}
	}
}
