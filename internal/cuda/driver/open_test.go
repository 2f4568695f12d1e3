package driver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
	"github.com/tech-renaissance/trbench/internal/dl"
)

func start(t *testing.T, m *fake.Machine) dl.Resolver {
	t.Helper()
	r, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Stop() })
	return r
}

func TestUnavailable(t *testing.T) {
	unknown := fake.H200(1)
	unknown.InitCode = 999
	mismatch := fake.H200(1)
	mismatch.InitCode = 803
	partial := fake.H200(1)
	partial.Absent = []string{"cuGraphExecUpdate_v2"}
	for _, c := range []struct {
		name   string
		m      *fake.Machine
		reason error
		code   driver.Result
		want   string
	}{
		{"no GPU", fake.Laptop(), driver.ErrNoDevice, driver.NoDevice, "nvidia-smi"},
		{"too old", fake.V100(1), driver.ErrTooOld, 0, "it is for CUDA 11.8"},
		{"a symbol short", partial, driver.ErrTooOld, 0, "lacks [cuGraphExecUpdate_v2]"},
		{"unknown", unknown, driver.ErrNotStarted, driver.Unknown, "nvidia-uvm"},
		{"mismatch", mismatch, driver.ErrNotStarted, driver.SystemDriverMismatch, "restart"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := driver.New(start(t, c.m))
			var u *driver.Unavailable
			if a != nil || !errors.As(err, &u) || !errors.Is(err, c.reason) {
				t.Fatalf("got %v, %v", a, err)
			}
			if c.code != 0 && !errors.Is(err, c.code) {
				t.Errorf("%v is not %v", err, c.code)
			}
			if !strings.Contains(err.Error(), c.want) || u.Advice == "" {
				t.Errorf("%q lacks %q", err, c.want)
			}
			if u.Version != driver.Version(c.m.Version) {
				t.Errorf("version %v", u.Version)
			}
		})
	}
	t.Run("no library", func(t *testing.T) {
		_, err := driver.Open(driver.Options{Path: filepath.Join(t.TempDir(), "libcuda.so.1")})
		if !errors.Is(err, driver.ErrNoLibrary) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "Install") {
			t.Errorf("got %v", err)
		}
	})
}

func TestMissingFeatures(t *testing.T) {
	a, err := driver.New(start(t, fake.A100(1)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range a.Missing() {
		names = append(names, f.Name)
		if f.Since <= driver.Version(12020) || f.For == "" {
			t.Errorf("%+v", f)
		}
	}
	if got := strings.Join(names, ", "); got != "edge data, capture to graph, function names, loading functions, parameter layout" {
		t.Errorf("missing: %s", got)
	}
	var missing *driver.MissingError
	if err := a.FuncLoad(1); !errors.As(err, &missing) || !errors.Is(err, driver.NotSupported) || !strings.Contains(err.Error(), "CUDA 12.4") {
		t.Errorf("FuncLoad: %v", err)
	}
}

func TestErrorValues(t *testing.T) {
	m := fake.H200(1)
	a, err := driver.New(start(t, m))
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.MemAlloc(16)
	if !errors.Is(err, driver.InvalidContext) || errors.Is(err, driver.InvalidValue) {
		t.Errorf("%v", err)
	}
	if got, want := err.Error(), "cuMemAlloc_v2: CUDA_ERROR_INVALID_CONTEXT (201)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// A code that the binding does not know is named by the driver.
	m.Fail(fake.Fault{Call: "cuDeviceGetCount", Code: 777})
	_, err = a.DeviceGetCount()
	var e *driver.Error
	if !errors.As(err, &e) || e.Name != "CUDA_ERROR_FAKE_777" || e.Code != 777 {
		t.Errorf("%v", err)
	}
}

func TestRefuseLaunchBlocking(t *testing.T) {
	for v, want := range map[string]error{"": nil, "0": nil, "1": driver.ErrLaunchBlocking} {
		if err := driver.RefuseLaunchBlocking(func(string) string { return v }); err != want {
			t.Errorf("%q: %v", v, err)
		}
	}
}

// TestInstalled opens the library of this machine, if there is one: without a
// GPU its cuInit says so.
func TestInstalled(t *testing.T) {
	a, err := driver.Open(driver.Options{})
	var u *driver.Unavailable
	switch {
	case err == nil:
		t.Logf("a GPU: %s", a.LibraryString())
		if a.Path() == "" || a.Version() < driver.Minimum {
			t.Errorf("path %q, version %v", a.Path(), a.Version())
		}
	case !errors.As(err, &u):
		t.Errorf("%T: %v", err, err)
	case errors.Is(err, driver.ErrNoLibrary):
		t.Skip(err)
	default:
		t.Logf("%s, CUDA %s: %v", u.Library, u.Version, err)
		if u.Library == "" || !errors.Is(err, driver.ErrNoDevice) && !errors.Is(err, driver.ErrNotStarted) {
			t.Errorf("unexpected: %v", err)
		}
	}
}
