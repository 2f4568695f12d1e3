package cli

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
)

// Libraries are the files of the GPU's libraries, or folders that hold them; an
// empty one is searched for. Tuning is how the GPU runs a step, as
// [cuda.ParseTuning] reads it.
type Libraries struct{ Driver, CuDNN, CuBLAS, NVML, CUPTI, Tuning string }

// libraryFlag is a flag that names a library's file.
type libraryFlag struct {
	name, usage string
	of          func(*Libraries) *string
}

func libraryFlags() []libraryFlag {
	return []libraryFlag{
		{"libcuda", "the CUDA driver's libcuda.so.1", func(l *Libraries) *string { return &l.Driver }},
		{"cudnn", "cuDNN's libcudnn.so.9", func(l *Libraries) *string { return &l.CuDNN }},
		{"cublas", "cuBLAS's libcublasLt.so", func(l *Libraries) *string { return &l.CuBLAS }},
		{"nvml", "NVML's libnvidia-ml.so.1", func(l *Libraries) *string { return &l.NVML }},
		{"cupti", "CUPTI's libcupti.so, for --trace", func(l *Libraries) *string { return &l.CUPTI }},
	}
}

func isLibraryFlag(name string) bool {
	return slices.ContainsFunc(libraryFlags(), func(f libraryFlag) bool { return f.name == name })
}

// file is the value of such a flag.
type file string

var _ pflag.Value = (*file)(nil)

func (f *file) Type() string   { return "PATH" }
func (f *file) String() string { return string(*f) }

func (f *file) Set(s string) error {
	if s == "" {
		return fmt.Errorf("is empty; it takes a file, or a folder that holds it")
	}
	*f = file(s)
	return nil
}

// addLibraries adds the flags that name libraries.
func (l *Libraries) addLibraries(s *pflag.FlagSet) {
	for _, f := range libraryFlags() {
		s.Var((*file)(f.of(l)), f.name, "file of "+f.usage+", or a folder that holds it (default searched for)")
	}
}

// words are the flags again, for a worker's command line.
func (l Libraries) words() (out []string) {
	for _, f := range libraryFlags() {
		if path := *f.of(&l); path != "" {
			out = append(out, "--"+f.name+"="+path)
		}
	}
	return out
}

// librariesIn are the files that a command line named; what else stands there
// is passed over.
func librariesIn(arguments []string) (l Libraries) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	l.addLibraries(set)
	_ = set.Parse(arguments) // up to what cannot be read
	return l
}

// over is l where it names a file, and other elsewhere.
func (l Libraries) over(other Libraries) Libraries {
	for _, f := range libraryFlags() {
		if *f.of(&l) == "" {
			*f.of(&l) = *f.of(&other)
		}
	}
	l.Tuning = cmp.Or(l.Tuning, other.Tuning)
	return l
}

// LibraryState is what is known of a library.
type LibraryState struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Files were opened, the library's own first.
	Files []string `json:"files,omitempty"`
	// Missing says why it cannot be used, and what would help.
	Missing string `json:"missing,omitempty"`
}

// useLibraries hands over the libraries that flags name, for what is to run on a
// device (auto, cpu, cuda) with kernels. A flag that nothing would read is
// refused.
func (env *Env) useLibraries(l Libraries, device string, kernels []string) error {
	given := l.words()
	if len(given) == 0 {
		return nil
	}
	for _, f := range libraryFlags() {
		path := f.of(&l)
		if *path == "" {
			continue
		}
		ignored := func(why, hint string) error {
			return &bench.InputError{Name: "--" + f.name, Reason: "would be ignored: " + why, Hint: hint}
		}
		if device == "cpu" {
			return ignored("device cpu needs no library", "drop it, or use --device=cuda")
		}
		if (f.name == "cudnn" || f.name == "cublas") && strings.Join(kernels, ",") == "builtin" {
			return ignored("--kernels=builtin runs the project's own kernels alone", "drop it, or add --kernels=cudnn")
		}
		if !filepath.IsAbs(*path) {
			*path = env.path(*path)
		}
	}
	if env.Engine.UseLibraries == nil {
		return &bench.InputError{Name: given[0], Reason: "cannot be used: this program opens no library"}
	}
	if err := env.Engine.UseLibraries(l); err != nil {
		return err
	}
	env.GPULibraries = l
	return nil
}
