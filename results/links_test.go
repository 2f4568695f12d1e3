package results

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFollowLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "file", "link2": "link", "gone": "none", "gone2": at("gone"), "sub/up": "../none", "ring": "ring2", "ring2": "ring"} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Skip(err)
		}
	}
	for name, want := range map[string]string{
		"file": "file", "link": "file", "link2": "file", "gone": "none", "gone2": "none", "sub/up": "none", "ring": "ring", "none": "none",
	} {
		if got := FollowLinks(at(name)); got != at(want) {
			t.Errorf("%s: %s, want %s", name, got, at(want))
		}
	}
	// A record goes where a link says, and the link stays.
	if _, err := Write(at("gone2"), sample()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(at("gone2")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if _, err := ReadFile(at("none")); err != nil {
		t.Error(err)
	}
}
