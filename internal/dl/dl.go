// Package dl opens shared libraries and looks up symbols, without cgo.
//
// It is the ground under every binding in internal/cuda: a binding asks for a
// library by the names its file may have ([Query]) and gets a [Library], or a
// [NotFoundError] that says what was tried. Bindings take a [Resolver], so that
// a table of functions made in this process can stand in for a library.
//
// The package keeps one rule: the absence of a library or of a symbol is a
// value, never a panic; nothing is opened that was not asked for.
package dl

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Resolver finds functions by name. [Library] is one; a fake driver another.
type Resolver interface {
	// Lookup returns the address of a function, or an error that wraps
	// [ErrNoSymbol]. It may be called on any thread.
	Lookup(name string) (uintptr, error)
}

// ErrNoSymbol says that a library lacks a function.
var ErrNoSymbol = errors.New("symbol not found")

// First returns the first of names that r knows, with the name found. Callers
// list versioned names newest first and spell each out, so that a header's idea
// of the default version plays no part.
func First(r Resolver, names ...string) (addr uintptr, name string, err error) {
	for _, n := range names {
		addr, err := r.Lookup(n)
		if err == nil && addr != 0 {
			return addr, n, nil
		}
	}
	return 0, "", fmt.Errorf("%s: %w", strings.Join(names, ", "), ErrNoSymbol)
}

// Query describes a library to be opened.
type Query struct {
	// Name is how the library is called in messages: "the CUDA driver".
	Name string
	// Files are its possible file names, best first: "libcuda.so.1".
	Files []string
	// Path, if set, is a file, or a folder that holds one of Files. Nothing
	// else is then tried.
	Path string
	// Dirs are searched after the loader's own path. Nil means
	// [SearchDirs]; an empty slice means none.
	Dirs []string
	// Global makes the library's symbols visible to libraries opened later.
	Global bool
	// Advice is the sentence a user reads when nothing was found: what to
	// install.
	Advice string
}

// Attempt is one path that was tried.
type Attempt struct {
	Path string
	// Err is the loader's sentence.
	Err string
}

// NotFoundError says that a library could not be opened.
type NotFoundError struct {
	Name string
	// Tried lists the loader's own path and every file that existed. Folders
	// without a matching file are counted in Searched alone.
	Tried    []Attempt
	Searched []string
	Advice   string
}

// Error is one sentence; Tried and Searched hold the rest.
func (e *NotFoundError) Error() string {
	s := e.Name + " could not be opened"
	if n := len(e.Tried); n > 0 {
		// A file that exists and does not load says more than a name that the
		// loader does not know, and files come last.
		s += fmt.Sprintf(" (%s: %s)", e.Tried[n-1].Path, e.Tried[n-1].Err)
	}
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

// Is matches [os.ErrNotExist].
func (e *NotFoundError) Is(target error) bool { return target == os.ErrNotExist }

// Library is an open shared library. It is counted: each Retain needs one
// Close. Its methods may be called on any thread.
type Library struct {
	handle uintptr
	path   string

	mu   sync.Mutex
	refs int
}

// Open opens the first file of the search order that loads: q.Path alone, if
// set; else the loader's own path; else q.Dirs. The error is a
// [*NotFoundError]. Source: dlopen(3).
func Open(q Query) (*Library, error) {
	nf := &NotFoundError{Name: q.Name, Advice: q.Advice}
	if q.Name == "" && len(q.Files) > 0 {
		nf.Name = q.Files[0]
	}
	try := func(path string) *Library {
		mode := purego.RTLD_NOW | purego.RTLD_LOCAL
		if q.Global {
			mode = purego.RTLD_NOW | purego.RTLD_GLOBAL
		}
		if why := unloadable(path); why != "" {
			nf.Tried = append(nf.Tried, Attempt{path, why})
			return nil
		}
		h, err := purego.Dlopen(path, mode)
		if err != nil {
			nf.Tried = append(nf.Tried, Attempt{path, err.Error()})
			return nil
		}
		return &Library{handle: h, path: openedPath(h, path), refs: 1}
	}
	tryDir := func(dir string) *Library {
		nf.Searched = append(nf.Searched, dir)
		for _, f := range q.Files {
			path := filepath.Join(dir, f)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			if l := try(path); l != nil {
				return l
			}
		}
		return nil
	}

	if q.Path != "" {
		if st, err := os.Stat(q.Path); err == nil && st.IsDir() {
			if l := tryDir(q.Path); l != nil {
				return l, nil
			}
			if len(nf.Tried) == 0 {
				why := "it is a folder"
				if len(q.Files) > 0 {
					why = "the folder holds none of " + strings.Join(q.Files, ", ")
				}
				nf.Tried = append(nf.Tried, Attempt{q.Path, why})
			}
			return nil, nf
		}
		if l := try(q.Path); l != nil {
			return l, nil
		}
		return nil, nf
	}
	for _, f := range q.Files {
		if l := try(f); l != nil {
			return l, nil
		}
	}
	dirs := q.Dirs
	if dirs == nil {
		dirs = SearchDirs()
	}
	for _, d := range dirs {
		if l := tryDir(d); l != nil {
			return l, nil
		}
	}
	return nil, nf
}

// unloadable says why a file must not reach the loader, which waits for whoever
// writes a pipe, and dies of a library that was cut off, as by a download that did
// not end; empty for what the loader itself can judge.
func unloadable(path string) string {
	if !strings.Contains(path, "/") {
		return "" // a name that the loader looks for
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if !info.Mode().IsRegular() {
		return "it is no regular file"
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var head elf.Header64
	if binary.Read(f, binary.LittleEndian, &head) != nil || string(head.Ident[:4]) != elf.ELFMAG ||
		head.Ident[elf.EI_CLASS] != byte(elf.ELFCLASS64) || head.Ident[elf.EI_DATA] != byte(elf.ELFDATA2LSB) {
		return ""
	}
	end := head.Phoff
	programs := io.NewSectionReader(f, int64(head.Phoff), int64(head.Phnum)*int64(head.Phentsize))
	for range head.Phnum {
		var p elf.Prog64
		if binary.Read(programs, binary.LittleEndian, &p) != nil {
			return fmt.Sprintf("it ends in the middle, after %d bytes", info.Size())
		}
		if p.Type == uint32(elf.PT_LOAD) {
			end = max(end, p.Off+p.Filesz)
		}
	}
	if end > uint64(info.Size()) {
		return fmt.Sprintf("it ends in the middle: it has %d bytes of %d", info.Size(), end)
	}
	return ""
}

// Path is the file that was opened, with links resolved where possible.
func (l *Library) Path() string { return l.path }

// Lookup implements [Resolver]. Source: dlsym(3).
func (l *Library) Lookup(name string) (uintptr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		return 0, fmt.Errorf("%s: %s: %w (the library is closed)", l.path, name, ErrNoSymbol)
	}
	addr, err := purego.Dlsym(l.handle, name)
	if err != nil || addr == 0 {
		return 0, fmt.Errorf("%s: %s: %w", l.path, name, ErrNoSymbol)
	}
	return addr, nil
}

// Retain adds a reference and returns l.
func (l *Library) Retain() *Library {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs > 0 {
		l.refs++
	}
	return l
}

// Close drops a reference. The last one unloads the library if nobody else in
// the process holds it; addresses found in it are then void. More calls do
// nothing. Source: dlclose(3).
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		return nil
	}
	if l.refs--; l.refs > 0 {
		return nil
	}
	if err := purego.Dlclose(l.handle); err != nil {
		return fmt.Errorf("close %s: %w", l.path, err)
	}
	return nil
}

// linkMap is the public head of the loader's record of an object, link.h.
type linkMap struct {
	_    uintptr // l_addr
	name *byte
}

const rtldDILinkMap = 2

// openedPath asks the loader which file stands behind a handle (dlinfo(3)) and
// resolves links; if the loader cannot say, it returns what was asked for.
func openedPath(handle uintptr, asked string) string {
	path := asked
	if f, err := purego.Dlsym(purego.RTLD_DEFAULT, "dlinfo"); err == nil && f != 0 {
		var lm *linkMap
		r, _, _ := purego.SyscallN(f, handle, rtldDILinkMap, uintptr(unsafe.Pointer(&lm)))
		if int32(r) == 0 && lm != nil && lm.name != nil {
			if s := cString(lm.name); s != "" {
				path = s
			}
		}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func cString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
