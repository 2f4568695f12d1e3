package cli

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/results"
)

func TestCheckoutRevision(t *testing.T) {
	a, b := strings.Repeat("a1", 20), strings.Repeat("b2", 20)
	const mod = "module " + modulePath + "\n\ngo 1.26\n"
	for _, test := range []struct {
		name, want string
		files      map[string]string
	}{
		{"a branch", a, map[string]string{"go.mod": mod, ".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": a + "\n"}},
		{"a packed branch", b, map[string]string{"go.mod": mod, ".git/HEAD": "ref: refs/heads/main\n",
			".git/packed-refs": "# pack-refs with: peeled\n" + a + " refs/heads/main2\n" + b + " refs/heads/main\n^" + a + "\n"}},
		{"no branch", a, map[string]string{"go.mod": mod, ".git/HEAD": a + "\n"}},
		{"a linked work tree", b, map[string]string{"go.mod": mod, ".git": "gitdir: real/.git/worktrees/x\n",
			"real/.git/worktrees/x/HEAD": "ref: refs/heads/topic\n", "real/.git/worktrees/x/commondir": "../..\n", "real/.git/refs/heads/topic": b + "\n"}},
		{"another module", "", map[string]string{"go.mod": "module example.org/trbench\n", ".git/HEAD": a}},
		{"a fork below", "", map[string]string{"go.mod": "module " + modulePath + "/v2\n", ".git/HEAD": a}},
		{"no repository", "", map[string]string{"go.mod": mod}},
		{"nothing", "", nil},
		{"an empty branch", "", map[string]string{"go.mod": mod, ".git/HEAD": "ref: refs/heads/main\n"}},
		{"a strange branch", "", map[string]string{"go.mod": mod, ".git/HEAD": "ref: ../../secret\n"}},
	} {
		dir := t.TempDir()
		for name, text := range test.files {
			name = filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		below := filepath.Join(dir, "cmd", "trbench")
		if err := os.MkdirAll(below, 0o777); err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{dir, below} {
			if got := checkoutRevision(from); got != test.want {
				t.Errorf("%s: %q, want %q", test.name, got, test.want)
			}
		}
	}
}

func TestProgramOf(t *testing.T) {
	stamped := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123"}, {Key: "vcs.modified", Value: "false"}}}
	bare := &debug.BuildInfo{}
	bare.Main.Version = "(devel)"
	asked := false
	checkout := func() string { asked = true; return "4567" }
	if p := programOf(stamped, checkout); p.Revision != "0123" || p.RevisionFrom != results.FromBuild || p.Dirty == nil || *p.Dirty || asked {
		t.Errorf("stamped: %+v", p)
	}
	p := programOf(bare, checkout)
	if p.Revision != "4567" || p.RevisionFrom != results.FromCheckout || p.Dirty != nil {
		t.Errorf("from the checkout: %+v", p)
	}
	if got := describe(p); !strings.Contains(got, "revision 4567 (from the checkout), built with") {
		t.Errorf("described as %q", got)
	}
	if p := programOf(bare, func() string { return "" }); p.Revision != "" || p.RevisionFrom != "" || p.Dirty != nil {
		t.Errorf("unknown: %+v", p)
	}
}
