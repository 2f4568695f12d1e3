package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// modulePath is this program's, as go.mod says it.
const modulePath = "github.com/tech-renaissance/trbench"

// checkoutRevision is the commit that a checkout of this module around dir is
// at; empty if there is none. Nothing is started for it, and whether files
// differ from the commit is not known.
func checkoutRevision(dir string) string {
	if dir == "" || !filepath.IsAbs(dir) {
		return ""
	}
	for {
		if b := readLittle(filepath.Join(dir, "go.mod")); b != "" {
			if !module.MatchString(b) {
				return ""
			}
			return headOf(filepath.Join(dir, ".git"))
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

var (
	module = regexp.MustCompile(`(?m)^module\s+"?` + regexp.QuoteMeta(modulePath) + `"?\s*$`)
	commit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// headOf reads the commit of a repository's HEAD (gitrepository-layout(5)).
func headOf(git string) string {
	// In a linked work tree .git is a file that says where its folder is; the
	// branches are then in the common one.
	if to, ok := strings.CutPrefix(readLittle(git), "gitdir: "); ok {
		git = join(filepath.Dir(git), to)
	}
	head := readLittle(filepath.Join(git, "HEAD"))
	ref, ok := strings.CutPrefix(head, "ref: ")
	if !ok {
		return asCommit(head)
	}
	common := git
	if to := readLittle(filepath.Join(git, "commondir")); to != "" {
		common = join(git, to)
	}
	if !filepath.IsLocal(ref) {
		return ""
	}
	if c := asCommit(readLittle(filepath.Join(common, ref))); c != "" {
		return c
	}
	for line := range strings.Lines(readLittle(filepath.Join(common, "packed-refs"))) {
		if c, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref {
			return asCommit(c)
		}
	}
	return ""
}

func join(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

func asCommit(s string) string {
	if commit.MatchString(s) {
		return s
	}
	return ""
}

// readLittle is a regular file's text without blanks around it, or what of it
// fits a megabyte; empty if it cannot be read.
func readLittle(name string) string {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
