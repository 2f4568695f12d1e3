package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
)

// Flag values that say in one sentence what is wrong. The sentence continues
// `--flag "value" `.

// counts is a list of whole numbers of at least min.
type counts struct {
	values []int
	min    int
	top    int // the largest; 0 for any
	max    int // how many values at most; 0 for any number
}

var _ pflag.Value = (*counts)(nil)

func (c *counts) Type() string {
	if c.max == 1 {
		return "N"
	}
	return "N,..."
}

func (c *counts) String() string {
	var words []string
	for _, v := range c.values {
		words = append(words, strconv.Itoa(v))
	}
	return strings.Join(words, ",")
}

func (c *counts) Set(s string) error {
	var values []int
	words := strings.Split(s, ",")
	if c.max == 1 && len(words) > 1 {
		return fmt.Errorf("must be one whole number, not %d", len(words))
	}
	for _, word := range words {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		switch {
		case errors.Is(err, strconv.ErrRange):
			return c.outside(word)
		case err != nil && c.max == 1:
			return fmt.Errorf("must be a whole number")
		case err != nil:
			return fmt.Errorf("must be whole numbers separated by commas")
		case n < c.min || c.top > 0 && n > c.top:
			return c.outside(word)
		case slices.Contains(values, n) && c.max == 0:
			return fmt.Errorf("names %d twice", n)
		}
		values = append(values, n)
	}
	if c.max > 0 && len(values) > c.max {
		return fmt.Errorf("has %d values; at most %d can be given", len(values), c.max)
	}
	c.values = values
	return nil
}

// outside says on which side of what is allowed a number lies.
func (c *counts) outside(word string) error {
	switch {
	case strings.HasPrefix(strings.TrimSpace(word), "-") || c.min > 0 && strings.Trim(word, " +0") == "":
		return fmt.Errorf("must be at least %d", c.min)
	case c.top > 0:
		return fmt.Errorf("must be at most %d", c.top)
	case c.max == 1:
		return fmt.Errorf("is too large a number")
	}
	return fmt.Errorf("has too large a number: %s", strings.TrimSpace(word))
}

// first is the value of a flag that takes one.
func (c *counts) first() int { return c.values[0] }

// names is a list of known words.
type names struct {
	values []string
	known  []string
	one    bool // a single word, no list
	given  bool // on the command line
}

var _ pflag.Value = (*names)(nil)

func (n *names) Type() string {
	if n.one {
		return "NAME"
	}
	return "NAME,..."
}

func (n *names) String() string { return strings.Join(n.values, ",") }

func (n *names) Set(s string) error {
	var values []string
	for word := range strings.SplitSeq(s, ",") {
		word = strings.TrimSpace(word)
		switch {
		case word == s && !slices.Contains(n.known, word):
			return fmt.Errorf("is unknown; known: %s", strings.Join(n.known, ", "))
		case !slices.Contains(n.known, word):
			return fmt.Errorf("has the unknown name %q; known: %s", word, strings.Join(n.known, ", "))
		case slices.Contains(values, word):
			return fmt.Errorf("names %s twice", word)
		}
		values = append(values, word)
	}
	if n.one && len(values) != 1 {
		return fmt.Errorf("must be one of: %s", strings.Join(n.known, ", "))
	}
	n.values, n.given = values, true
	return nil
}

// fraction is a number in [0, 1).
type fraction float64

var _ pflag.Value = (*fraction)(nil)

func (f *fraction) Type() string   { return "X" }
func (f *fraction) String() string { return strconv.FormatFloat(float64(*f), 'g', -1, 64) }

func (f *fraction) Set(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	// ParseFloat also reads hexadecimal, infinities and underscores.
	if err != nil || strings.Trim(s, "0123456789.eE+-") != "" || !(v >= 0 && v < 1) {
		return fmt.Errorf("must be a number of at least 0 and below 1")
	}
	*f = fraction(v)
	return nil
}

// seed is a whole number of 64 bits.
type seed uint64

var _ pflag.Value = (*seed)(nil)

func (n *seed) Type() string   { return "N" }
func (n *seed) String() string { return strconv.FormatUint(uint64(*n), 10) }

func (n *seed) Set(s string) error {
	v, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("is too large a number; at most %d can be given", uint64(math.MaxUint64))
	case err != nil:
		return fmt.Errorf("must be a whole number of at least 0")
	}
	*n = seed(v)
	return nil
}

// span is a positive time such as 45s.
type span time.Duration

var _ pflag.Value = (*span)(nil)

func (d *span) Type() string { return "TIME" }

func (d *span) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *span) Set(s string) error {
	v, err := time.ParseDuration(s)
	// ParseDuration does not say what is too much for it.
	if err != nil || v <= 0 || v > bench.MaxBudget {
		return fmt.Errorf("must be a time above 0 and of at most %.0fh, such as 45s or 2m", bench.MaxBudget.Hours())
	}
	*d = span(v)
	return nil
}

// variants is the value of --variants.
type variants struct {
	timed []int
	all   bool // prepare all six
}

var _ pflag.Value = (*variants)(nil)

func (v *variants) Type() string { return "N,...|all" }

func (v *variants) String() string {
	if v.all {
		return "all"
	}
	return (&counts{values: v.timed}).String()
}

func (v *variants) Set(s string) error {
	if s == "all" {
		*v = variants{timed: []int{defaultVariant}, all: true}
		return nil
	}
	var list counts
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return fmt.Errorf("must be \"all\" or variants 0 to 5 separated by commas")
		case err != nil || n < 0 || n > 5:
			return fmt.Errorf("must name variants 0 to 5: begin, final, validation, each with full and last batch")
		case slices.Contains(list.values, n):
			return fmt.Errorf("names %d twice", n)
		}
		list.values = append(list.values, n)
	}
	*v = variants{timed: list.values}
	return nil
}

// defaultVariant is the final resolution with a full batch.
const defaultVariant = 2
