package cudnn

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ebitengine/purego"
)

// functions is a resolver: a library that knows some names, all with a function
// that returns the version.
type functions struct {
	version uintptr
	missing string
}

var callbacks = map[uintptr]uintptr{}

func (f functions) Lookup(name string) (uintptr, error) {
	if name == f.missing {
		return 0, errors.New("undefined symbol: " + name)
	}
	if callbacks[f.version] == 0 {
		callbacks[f.version] = purego.NewCallback(func() uintptr { return f.version })
	}
	return callbacks[f.version], nil
}

func TestUnavailable(t *testing.T) {
	for _, c := range []struct {
		name string
		f    functions
		want string
	}{
		{"a missing function", functions{91900, "cudnnBackendExecute"}, "lacks cudnnBackendExecute"},
		{"too old", functions{8907, ""}, "cuDNN 8.9.7 is too old"},
	} {
		_, err := New(c.f)
		if _, ok := errors.AsType[*Unavailable](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	l, err := New(functions{91900, ""})
	if err != nil || l.Version() != 91900 || VersionString(l.Version()) != "9.19.0" || len(l.Parts()) != 0 {
		t.Errorf("library %+v, %v", l, err)
	}
}

func TestNotFound(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(Options{Path: dir})
	u, ok := errors.AsType[*Unavailable](err)
	if !ok || !errors.Is(err, os.ErrNotExist) || u.Library != "" || !strings.Contains(err.Error(), "install cuDNN 9") {
		t.Errorf("an empty folder: %v", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a sentence: %q", err)
	}
	// A file that is no library.
	if err := os.WriteFile(dir+"/libcudnn.so.9", []byte("not ELF"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Path: dir}); err == nil || !strings.Contains(err.Error(), "libcudnn.so.9") {
		t.Errorf("a file that is no library: %v", err)
	}
}

func TestStatusFamilies(t *testing.T) {
	err := error(&Error{Call: "cudnnBackendFinalize", Code: 3002, Name: "CUDNN_STATUS_NOT_SUPPORTED_SHAPE", Detail: "why"})
	for target, want := range map[Status]bool{NotSupported: true, 3002: true, 3001: false, BadParam: false, Success: false} {
		if errors.Is(err, target) != want {
			t.Errorf("errors.Is(3002, %d) is %v", target, !want)
		}
	}
	if got := err.Error(); got != "cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED_SHAPE (3002): why" {
		t.Error(got)
	}
	if s := NoteWinograd.String() + " " + NumericalNote(42).String() + " " + NoteCUDAGraphNative.String(); s != "winograd numerical_note_42 cuda_graph_native" {
		t.Error(s)
	}
}
