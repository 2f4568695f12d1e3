package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tech-renaissance/trbench/results"
)

// Sources is where everything is read from. A nil source is one that says
// nothing.
type Sources struct {
	// Root is the file system from "/" on: proc, sys and etc lie in it.
	Root fs.FS
	// LookupEnv returns an environment variable. It is asked for the names of
	// a fixed list only.
	LookupEnv func(name string) (string, bool)
	Program   results.Program
	Go        Toolchain
	// GPU is nil where no device of that kind is open.
	GPU GPU
}

// Toolchain is what the Go runtime and the build say of themselves.
type Toolchain struct {
	OS, Arch string
	MaxProcs int
	// Settings are the build settings by key; nil if the binary carries none.
	Settings map[string]string
}

// GPU is what a device knows of itself and of its libraries. It returns the
// fields named in this package that it can read, others if it likes, and never
// a UUID or serial number. Several GPUs that differ are listed with commas.
type GPU interface {
	Fields() []results.EnvironmentField
	Readings() []results.Reading
}

// Local are the sources of the machine and process this runs on, without a
// GPU.
func Local(program results.Program) Sources {
	s := Sources{
		Root: os.DirFS("/"), LookupEnv: os.LookupEnv, Program: program,
		Go: Toolchain{OS: runtime.GOOS, Arch: runtime.GOARCH, MaxProcs: runtime.GOMAXPROCS(0)},
	}
	if info, ok := debug.ReadBuildInfo(); ok && len(info.Settings) > 0 {
		s.Go.Settings = map[string]string{}
		for _, v := range info.Settings {
			s.Go.Settings[v.Key] = v.Value
		}
	}
	return s
}

// maxFile bounds what is read of one file. The longest, cpuinfo, has about
// 1.5 KB a thread.
const maxFile = 4 << 20

// tree reads from a file system until its context ends.
type tree struct {
	ctx  context.Context
	root fs.FS
}

// text returns a file's text without surrounding space and NULs. The error is
// a sentence fit for a field's Why.
func (t tree) text(name string) (string, error) {
	if err := t.ctx.Err(); err != nil {
		return "", fmt.Errorf("not read: %w", err)
	}
	if t.root == nil {
		return "", errors.New("there is no file system to read from")
	}
	f, err := t.root.Open(name)
	if err != nil {
		return "", sentence(name, err)
	}
	defer f.Close() // opened for reading: nothing to lose
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return "", sentence(name, err)
	}
	text := strings.Trim(string(b), "\x00 \t\r\n")
	if text == "" {
		return "", fmt.Errorf("/%s is empty", name)
	}
	return text, nil
}

// word returns the text of a file that holds one value, fit for a field.
func (t tree) word(name string) (string, error) {
	text, err := t.text(name)
	if err != nil {
		return "", err
	}
	return clean(text), nil
}

// list returns the names in a folder, sorted; none if it cannot be read.
func (t tree) list(name string) []string {
	if t.ctx.Err() != nil || t.root == nil {
		return nil
	}
	entries, err := fs.ReadDir(t.root, name)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

func (t tree) exists(name string) bool {
	if t.ctx.Err() != nil || t.root == nil {
		return false
	}
	_, err := fs.Stat(t.root, name)
	return err == nil
}

// sentence words an error without the root that the file system adds.
func sentence(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("/%s does not exist", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("/%s may not be read", name)
	}
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("/%s: %w", name, err)
}

// maxValue bounds a field's value, in bytes.
const maxValue = 200

// clean makes one printable line of a value.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	for len(s) > maxValue {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimRight(s, " ")
}
