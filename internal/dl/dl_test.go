package dl

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
)

// libm is a library that every machine with a loader has.
var libm = Query{Name: "the C mathematics library", Files: []string{"libm.so.99", "libm.so.6"}}

func TestOpen(t *testing.T) {
	l, err := Open(libm)
	if err != nil {
		t.Skip("no libm here: ", err)
	}
	if !filepath.IsAbs(l.Path()) || !strings.Contains(filepath.Base(l.Path()), "libm") {
		t.Errorf("path of the opened file is %q", l.Path())
	}
	if _, err := os.Stat(l.Path()); err != nil {
		t.Error(err)
	}
	addr, name, err := First(l, "cos_v7", "cos_v3", "cos")
	if err != nil || addr == 0 || name != "cos" {
		t.Errorf("First: %#x %q %v", addr, name, err)
	}
	if _, err := l.Lookup("cos_v7"); !errors.Is(err, ErrNoSymbol) || !strings.Contains(err.Error(), "cos_v7") {
		t.Errorf("Lookup of an absent symbol: %v", err)
	}
	if _, _, err := First(l, "cos_v7", "cos_v6"); !errors.Is(err, ErrNoSymbol) {
		t.Errorf("First of absent symbols: %v", err)
	}
}

func TestOpenByPath(t *testing.T) {
	l, err := Open(libm)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	q := Query{Name: "libm", Files: []string{filepath.Base(l.Path())}}
	for _, path := range []string{l.Path(), filepath.Dir(l.Path())} {
		q.Path = path
		m, err := Open(q)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if m.Path() != l.Path() {
			t.Errorf("opened %s, want %s", m.Path(), l.Path())
		}
		m.Close()
	}
	// A path given is the only one tried.
	q = libm
	q.Path = filepath.Join(t.TempDir(), "libm.so.6")
	if _, err := Open(q); err == nil {
		t.Error("a missing file at the given path was replaced by another")
	}
	q.Path = t.TempDir()
	if _, err := Open(q); err == nil || !strings.Contains(err.Error(), "holds none of") {
		t.Errorf("an empty folder: %v", err)
	}
	// Without names there is nothing that it could hold.
	if _, err := Open(Query{Path: q.Path}); err == nil || !strings.HasSuffix(err.Error(), ": it is a folder)") {
		t.Errorf("a folder in the place of a file: %v", err)
	}
}

// What would stop the process or hold it up does not reach the loader.
func TestOpenRefusesWhatTheLoaderDiesOf(t *testing.T) {
	l, err := Open(libm)
	if err != nil {
		t.Skip(err)
	}
	whole, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{pipe: ": it is no regular file)", "/dev/zero": ": it is no regular file)"} {
		if _, err := Open(Query{Name: "it", Path: name}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cut := filepath.Join(dir, libm.Files[0])
	for _, n := range []int{100, 3000, len(whole) / 2} {
		if err := os.WriteFile(cut, whole[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{cut, dir} {
			if _, err := Open(Query{Name: "it", Files: libm.Files, Path: path}); err == nil || !strings.Contains(err.Error(), "it ends in the middle") {
				t.Errorf("%d bytes of %s: %v", n, path, err)
			}
		}
	}
	if err := os.WriteFile(cut, whole, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Query{Path: cut}); err != nil {
		t.Error(err)
	}
}

func TestReferences(t *testing.T) {
	l, err := Open(libm)
	if err != nil {
		t.Skip(err)
	}
	l.Retain()
	for i, want := range []bool{true, false, false} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Lookup("cos"); (err == nil) != want {
			t.Errorf("after %d closes: lookup gives %v", i+1, err)
		}
	}
}

func TestNotFound(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "libnothing.so.1")
	if err := os.WriteFile(bad, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Query{Name: "the thing", Files: []string{"libnothing.so.1"}, Dirs: []string{t.TempDir(), dir}, Advice: "install thing"})
	var nf *NotFoundError
	if !errors.As(err, &nf) || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("error is %v", err)
	}
	if len(nf.Tried) != 2 || nf.Tried[1].Path != bad || len(nf.Searched) != 2 {
		t.Errorf("tried %v, searched %v", nf.Tried, nf.Searched)
	}
	for _, want := range []string{"the thing could not be opened", bad, "install thing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("more than a sentence: %q", err)
	}
}

func TestSearchDirs(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{
		"usr/local/cuda-12.4/lib64", "usr/local/cuda-13.0/lib64", "usr/local/cuda-13.0/targets/x86_64-linux/lib",
		"usr/lib/x86_64-linux-gnu/nvidia/current", "usr/local/nvidia/lib64",
		"home/me/.local/lib/python3.11/site-packages/nvidia/cudnn/lib",
		"venv/lib/python3.12/site-packages/nvidia/nccl/lib",
		"opt/app/.venv/lib/python3.13/site-packages/nvidia/cublas/lib",
		"usr/lib/python3/dist-packages/nvidia/x/lib", "cuda-own/lib64",
	} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"HOME": "/home/me", "VIRTUAL_ENV": "/venv", "CUDA_HOME": "/cuda-own"}
	var got []string
	for _, d := range searchDirs(root, func(k string) string { return env[k] }) {
		rel, _ := filepath.Rel(root, d)
		got = append(got, rel)
	}
	want := []string{
		"cuda-own/lib64",
		"usr/local/cuda-13.0/lib64", "usr/local/cuda-12.4/lib64", "usr/local/cuda-13.0/targets/x86_64-linux/lib",
		"usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/local/nvidia/lib64",
		"venv/lib/python3.12/site-packages/nvidia/nccl/lib",
		"home/me/.local/lib/python3.11/site-packages/nvidia/cudnn/lib",
		"usr/lib/python3/dist-packages/nvidia/x/lib",
		"opt/app/.venv/lib/python3.13/site-packages/nvidia/cublas/lib",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("search order\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCall shows that an address found is one that can be called.
func TestCall(t *testing.T) {
	l, err := Open(Query{Files: []string{"libc.so.6"}})
	if err != nil {
		t.Skip(err)
	}
	f, err := l.Lookup("labs")
	if err != nil {
		t.Fatal(err)
	}
	minus7 := -7
	if r, _, _ := purego.SyscallN(f, uintptr(minus7)); r != 7 {
		t.Errorf("labs(-7) = %d", r)
	}
}
