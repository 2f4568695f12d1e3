package page_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// luminance is WCAG 2.2's relative luminance of a colour written as #rrggbb.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(hex, "#"), 16, 32)
	if err != nil || len(hex) != 7 {
		t.Fatalf("%q is no colour", hex)
	}
	channel := func(v uint64) float64 {
		c := float64(v&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(n>>16) + 0.7152*channel(n>>8) + 0.0722*channel(n)
}

func contrastOf(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// Marks of charts and timelines, and what else carries a meaning without being
// text, have a contrast of 3 to the ground, texts of 4.5 to all that they stand
// on, in both themes, as the style sheet says.
func TestMarksHaveContrast(t *testing.T) {
	for colors, want := range map[[2]string]float64{{"#000000", "#ffffff"}: 21, {"#777777", "#ffffff"}: 4.48, {"#ffffff", "#ffffff"}: 1} {
		if got := contrastOf(t, colors[0], colors[1]); math.Abs(got-want) > 0.005 {
			t.Fatalf("the contrast of %v is %.3f, want %.3f", colors, got, want)
		}
	}
	css, err := os.ReadFile("page.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := [2]map[string]string{{}, {}}
	for _, m := range regexp.MustCompile(`--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)`).FindAllStringSubmatch(string(css), -1) {
		for i := range themes {
			if themes[i][m[1]] != "" {
				t.Errorf("%s is given twice", m[1])
			}
			themes[i][m[1]] = m[2+i]
		}
	}
	marks := 0
	for i, theme := range []string{"light", "dark"} {
		colors := themes[i]
		for name, c := range colors {
			var least float64
			grounds := []string{"ground"}
			switch {
			case strings.HasPrefix(name, "look-") || strings.HasPrefix(name, "part-") || name == "doubt-edge":
				least = 3
				marks++
			case strings.HasPrefix(name, "span-") || strings.HasPrefix(name, "gap-"):
				// Those before a step stand on raised ground.
				least, grounds = 3, []string{"ground", "raised"}
				marks++
			case name == "ink" || name == "quiet" || name == "link" || name == "focus" || name == "good":
				least, grounds = 4.5, []string{"ground", "raised"}
			case name == "bad":
				least, grounds = 4.5, []string{"ground", "raised", "bad-ground"}
			case name == "ground" || name == "raised" || name == "bad-ground" || name == "line":
				continue // behind, or between, what is read
			default:
				t.Errorf("%s is no colour that this test knows", name)
				continue
			}
			for _, g := range grounds {
				if got := contrastOf(t, c, colors[g]); got < least {
					t.Errorf("%s: %s %s on %s %s has a contrast of %.2f, less than %v", theme, name, c, g, colors[g], got, least)
				}
			}
		}
	}
	if marks != 2*(8+8+8+4+1) {
		t.Errorf("%d marks were looked at", marks)
	}
}
