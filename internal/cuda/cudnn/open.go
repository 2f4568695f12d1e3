package cudnn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// Options say where cuDNN is.
type Options struct {
	// Path is libcudnn's file or folder; empty searches the loader's path and
	// the usual folders.
	Path string
}

// Minimum is the oldest version whose backend API has all that is used here:
// 9.0, as cudnnGetVersion counts.
const Minimum = 90000

// Part is a file that was opened, or tried, for cuDNN.
type Part struct {
	Name string
	// Path is the file opened; empty if none was.
	Path string
	// Err says why it was not opened. A part that no plan needs may be
	// missing.
	Err string
}

// parts are cuDNN's own libraries, in the order in which they need each
// other. libcudnn opens them by name when it first needs them, and ends the
// process if it cannot open the first; so they are opened beforehand from the
// folder where it lies, which then need not be on the loader's path.
var parts = []string{
	"libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9", "libcudnn_adv.so.9",
	"libcudnn_engines_precompiled.so.9", "libcudnn_engines_runtime_compiled.so.9", "libcudnn_heuristic.so.9",
}

const advice = "install cuDNN 9 (Debian's nvidia-cudnn or NVIDIA's packages; or \"pip install nvidia-cudnn-cu13\") or name its file"

// Open opens libcudnn and its parts and resolves the calls. The libraries stay
// loaded for the life of the process. The error is an [*Unavailable]. It needs
// no context. Source: dlopen(3), cudnnGetVersion.
func Open(opt Options) (*Library, error) {
	lib, err := dl.Open(dl.Query{
		Name: "cuDNN", Files: []string{"libcudnn.so.9"}, Path: opt.Path, Global: true, Advice: advice,
	})
	if err != nil {
		return nil, &Unavailable{Reason: "cuDNN 9 was not found", Cause: err}
	}
	// Another library says so before parts are looked for.
	if _, err := lib.Lookup("cudnnGetVersion"); err != nil {
		_, err := New(lib)
		return nil, errors.Join(err, lib.Close())
	}
	dir := filepath.Dir(lib.Path())
	first := []Part{{Name: "libcudnn.so.9", Path: lib.Path()}, openPart(dir, parts[0])}
	if p := first[1]; p.Path == "" {
		return nil, &Unavailable{
			Reason: "cuDNN's part " + p.Name + " could not be opened", Library: lib.Path(), Cause: errors.New(p.Err),
		}
	}
	l, err := New(lib)
	if err != nil {
		if u, ok := errors.AsType[*Unavailable](err); ok {
			u.Library = lib.Path()
		}
		return nil, err
	}
	l.parts = first
	// cuDNN's runtime-compiled engines call NVRTC and some engines cuBLASLt,
	// of the CUDA version that cuDNN was built for.
	if major := l.CudartVersion() / 1000; major > 0 {
		for _, n := range []string{"libnvrtc", "libcublasLt"} {
			l.parts = append(l.parts, openPart("", fmt.Sprintf("%s.so.%d", n, major)))
		}
	}
	// Which of the others a plan needs is known when the plan is made: a
	// failure is noted, not returned.
	for _, n := range parts[1:] {
		l.parts = append(l.parts, openPart(dir, n))
	}
	return l, nil
}

// openPart opens a library from the folder, if it is there, or else by search.
func openPart(dir, file string) Part {
	q := dl.Query{Files: []string{file}, Global: true}
	if dir != "" && exists(filepath.Join(dir, file)) {
		q.Path = filepath.Join(dir, file)
	}
	lib, err := dl.Open(q)
	if err != nil {
		return Part{Name: file, Err: err.Error()}
	}
	return Part{Name: file, Path: lib.Path()}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Library is an open cuDNN. Its methods may be called on any thread with a
// current context; Version, CudartVersion and Parts need none.
type Library struct {
	t       table
	version int
	parts   []Part
}

// table holds the functions' addresses.
type table struct {
	getVersion, getCudartVersion, getErrorString, getLastErrorString uintptr
	create, destroy, setStream                                       uintptr
	createDescriptor, destroyDescriptor, finalize                    uintptr
	setAttribute, getAttribute, execute                              uintptr
}

// New resolves cuDNN's calls in r and checks the version. The error is an
// [*Unavailable]. It needs no context.
func New(r dl.Resolver) (*Library, error) {
	l := &Library{}
	for _, s := range []struct {
		name string
		addr *uintptr
	}{
		{"cudnnGetVersion", &l.t.getVersion},
		{"cudnnGetCudartVersion", &l.t.getCudartVersion},
		{"cudnnGetErrorString", &l.t.getErrorString},
		{"cudnnGetLastErrorString", &l.t.getLastErrorString},
		{"cudnnCreate", &l.t.create},
		{"cudnnDestroy", &l.t.destroy},
		{"cudnnSetStream", &l.t.setStream},
		{"cudnnBackendCreateDescriptor", &l.t.createDescriptor},
		{"cudnnBackendDestroyDescriptor", &l.t.destroyDescriptor},
		{"cudnnBackendFinalize", &l.t.finalize},
		{"cudnnBackendSetAttribute", &l.t.setAttribute},
		{"cudnnBackendGetAttribute", &l.t.getAttribute},
		{"cudnnBackendExecute", &l.t.execute},
	} {
		addr, err := r.Lookup(s.name)
		if err != nil || addr == 0 {
			return nil, &Unavailable{Reason: "the library that was opened is not cuDNN 9, it lacks " + s.name, Cause: err}
		}
		*s.addr = addr
	}
	v, _, _ := purego.SyscallN(l.t.getVersion)
	l.version = int(v)
	if l.version < Minimum {
		return nil, &Unavailable{Reason: fmt.Sprintf("cuDNN %s is too old, 9.0 or newer is needed", VersionString(l.version))}
	}
	return l, nil
}

// Version is the library's version as cudnnGetVersion counts: 91900 is 9.19.0.
func (l *Library) Version() int { return l.version }

// VersionString writes a version with dots.
func VersionString(v int) string {
	if v < Minimum {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// CudartVersion is the CUDA runtime that cuDNN was built for: 13000 is 13.0.
// Source: cudnnGetCudartVersion.
func (l *Library) CudartVersion() int {
	v, _, _ := purego.SyscallN(l.t.getCudartVersion)
	return int(v)
}

// Parts lists the files opened for the library, itself first. It is empty for a
// library made by [New].
func (l *Library) Parts() []Part { return l.parts }
