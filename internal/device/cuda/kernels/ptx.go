package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed cu/*.cu cu/*.cuh cu/*.ptx
var files embed.FS

// Kernel is an entry point of a module, as its PTX declares it.
type Kernel struct {
	Name   string
	Module string // the source file without its extension
	// Params lists the PTX types of the parameters in order, separated by
	// blanks: u64, u32, f32, and bN for a structure of N bytes.
	Params string
}

// Module is the text of one source file's PTX, without a terminating 0. A device
// loads those that the kernels of its plans name: the driver compiles each when it
// is loaded.
type Module struct {
	Name string
	PTX  []byte
}

// dependentLaunch is the compute capability (times ten) from on which the
// second text is used.
const dependentLaunch = 90

// Modules returns the PTX for a device of compute capability major.minor, in
// order of names. It fails below 8.0.
func Modules(major, minor int) ([]Module, error) {
	cc := 10*major + minor
	if cc < 80 {
		return nil, fmt.Errorf("kernels: compute capability %d.%d: the kernels need 8.0 or later", major, minor)
	}
	suffix := ".ptx"
	if cc >= dependentLaunch {
		suffix = ".sm90.ptx"
	}
	var out []Module
	for _, name := range sources() {
		base, ok := strings.CutSuffix(name, ".cu")
		if !ok {
			continue
		}
		text, err := files.ReadFile("cu/" + base + suffix)
		if err != nil {
			return nil, fmt.Errorf("kernels: %w", err)
		}
		out = append(out, Module{Name: base, PTX: text})
	}
	return out, nil
}

// Lookup returns a kernel's declaration.
func Lookup(name string) (Kernel, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(k Kernel, name string) int { return strings.Compare(k.Name, name) })
	if !ok {
		return Kernel{}, false
	}
	return table[i], true
}

// Kernels returns all kernels in order of names.
func Kernels() []Kernel { return slices.Clone(table) }

// sources lists the source files in order of names.
func sources() []string {
	entries, err := fs.ReadDir(files, "cu")
	if err != nil {
		return nil // the folder is embedded
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".cu") || strings.HasSuffix(e.Name(), ".cuh") {
			names = append(names, e.Name())
		}
	}
	return names
}

// hashSources is the SHA-256 of all source files, with line ends and blanks at
// line ends normalised.
func hashSources() (string, error) {
	h := sha256.New()
	for _, name := range sources() {
		text, err := files.ReadFile("cu/" + name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\n", name)
		for line := range strings.Lines(string(text)) {
			fmt.Fprintf(h, "%s\n", strings.TrimRight(line, " \t\r\n"))
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
