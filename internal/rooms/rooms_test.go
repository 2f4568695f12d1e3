package rooms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tech-renaissance/trbench"

// room is a line of the table, or the second of two in one line ("a, then b"),
// which stands above the first.
type room struct {
	name  string
	floor int
	step  int
}

func (r room) below(o room) bool {
	return r.floor < o.floor || r.floor == o.floor && r.step < o.step
}

var (
	tableLine = regexp.MustCompile(`^\| *(\d+) *\|([^|]*)\|`)
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// readTable finds the rooms in the design page.
func readTable(text string) []room {
	var rooms []room
	for line := range strings.Lines(text) {
		m := tableLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		floor, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		for i, q := range quoted.FindAllStringSubmatch(m[2], -1) {
			step := 0
			if strings.Contains(m[2], "then") {
				step = i
			}
			rooms = append(rooms, room{strings.TrimSuffix(q[1], "/..."), floor, step})
		}
	}
	return rooms
}

// find returns the room of a package: the longest name that is its path or a
// folder above it.
func find(rooms []room, path string) (room, bool) {
	rel := strings.TrimPrefix(path, module+"/")
	var best room
	found := false
	for _, r := range rooms {
		if (rel == r.name || strings.HasPrefix(rel, r.name+"/")) && len(r.name) >= len(best.name) {
			best, found = r, true
		}
	}
	return best, found
}

// pkg is what go list says of a package. Imports are those of its non-test
// files.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func local(path string) bool { return strings.HasPrefix(path, module+"/") }

// check returns a sentence for each import that breaks the rule.
func check(rooms []room, pkgs []pkg) []string {
	standard := map[string]bool{"C": false, "unsafe": true}
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	var broken []string
	for _, p := range pkgs {
		if !local(p.ImportPath) || p.ImportPath == module+"/internal/rooms" {
			continue
		}
		from, ok := find(rooms, p.ImportPath)
		if !ok {
			broken = append(broken, fmt.Sprintf("%s has no room in docs/design.md", p.ImportPath))
			continue
		}
		for _, imp := range p.Imports {
			if why := judge(rooms, from, imp, standard[imp]); why != "" {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imp, why))
			}
		}
	}
	return broken
}

// judge says what is wrong with an import, or nothing.
func judge(rooms []room, from room, imp string, standard bool) string {
	if !local(imp) {
		if slices.Contains([]string{"results", "timeline", "workloads"}, from.name) && !standard {
			return from.name + " uses the standard library only"
		}
		return ""
	}
	to, ok := find(rooms, imp)
	switch {
	case !ok:
		return "which has no room"
	case to.name == from.name || to.name == "results" || to.name == "timeline":
		return ""
	case !to.below(from):
		return fmt.Sprintf("floor %d (%s) is not below floor %d (%s)", to.floor, to.name, from.floor, from.name)
	}
	return ""
}

func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	rooms := readTable(string(text))
	if len(rooms) < 10 {
		t.Fatalf("docs/design.md: found only the rooms %v", rooms)
	}
	for _, why := range check(rooms, list(t, root)) {
		t.Error(why)
	}
}

// The README's layout has every room, or the folder that holds it.
func TestREADMEHasAllRooms(t *testing.T) {
	root := filepath.Join("..", "..")
	var text [2]string
	for i, name := range []string{filepath.Join("docs", "design.md"), "README.md"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		text[i] = string(b)
	}
	_, layout, ok := strings.Cut(text[1], "\n## Layout\n")
	if !ok {
		t.Fatal("README.md has no layout")
	}
	var shown []room
	for line := range strings.Lines(layout) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "|"), "|"); ok {
			for _, q := range quoted.FindAllStringSubmatch(cell, -1) {
				shown = append(shown, room{name: q[1]})
				if _, err := os.Stat(filepath.Join(root, q[1])); err != nil {
					t.Errorf("README.md: %v", err)
				}
			}
		}
	}
	for _, r := range append(readTable(text[0]), room{name: "scripts"}, room{name: "docs"}) {
		if _, ok := find(shown, r.name); !ok {
			t.Errorf("README.md's layout lacks %s", r.name)
		}
	}
}

// list asks the go command about all packages and what they depend on.
func list(t *testing.T, root string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Standard", "./...")
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, problems.String())
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestTheRuleHasTeeth(t *testing.T) {
	rooms := readTable(strings.Join([]string{
		"| 0 | `results` | x |", "| 0 | `workloads` | x |", "| 1 | `workloads/data` | x |", "| 2 | `internal/device` | x |",
		"| 4 | `eager` | x |", "| 4 | `capture` | x |", "| 7 | `internal/cli`, then `cmd/trbench` | x |",
	}, "\n"))
	for _, test := range []struct {
		from, imp string
		standard  bool
		want      string
	}{
		{"eager", module + "/workloads", false, ""},
		{"eager", module + "/results", false, ""},
		{"eager", module + "/eager/inner", false, ""},
		{"internal/device/cpu", module + "/internal/device", false, ""},
		{"cmd/trbench", module + "/internal/cli", false, ""},
		{"eager", "github.com/x/y", false, ""},
		{"results", "os", true, ""},
		{"eager", module + "/capture", false, "not below"},
		{"capture", module + "/eager", false, "not below"},
		{"internal/cli", module + "/cmd/trbench", false, "not below"},
		{"internal/device/cpu", module + "/eager", false, "not below"},
		{"workloads", module + "/workloads/data", false, "not below"},
		{"workloads", "github.com/x/y", false, "standard library only"},
		{"results", "github.com/x/y", false, "standard library only"},
		{"eager", module + "/util", false, "no room"},
		{"util", "os", true, "no room"},
	} {
		got := strings.Join(check(rooms, []pkg{
			{ImportPath: module + "/" + test.from, Imports: []string{test.imp}},
			{ImportPath: test.imp, Standard: test.standard},
		}), "; ")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s imports %s: got %q, want %q", test.from, test.imp, got, test.want)
		}
	}
}
