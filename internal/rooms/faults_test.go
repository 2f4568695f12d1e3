package rooms

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/faults.md names exist where it says.
func TestFaultsNamesTests(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/]+)` ((?:Test[A-Za-z0-9]+(?:, )?)+)")
	rows, tests := 0, 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || !strings.Contains(line, "#") {
			continue
		}
		rows++
		found := named.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("a row names no test: %s", line)
		}
		for _, m := range found {
			files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m[1]), "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			var source strings.Builder
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				source.Write(b)
			}
			for _, name := range strings.Split(strings.TrimSuffix(m[2], ", "), ", ") {
				tests++
				if !strings.Contains(source.String(), "\nfunc "+name+"(") {
					t.Errorf("%s has no %s", m[1], name)
				}
			}
		}
	}
	if rows < 20 || tests < rows {
		t.Errorf("%d rows, %d tests", rows, tests)
	}
}
