package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Retention bounds the disk that records take. Nights' own files, which have
// every figure that is compared over time, are a few kilobytes each and stay
// for good; what goes are the records behind old nights, with their single
// samples. The first of these that says so keeps a record:
//
//   - a pin;
//   - the last Full nights;
//   - the first night of each week, for Weeks weeks before the newest night;
//   - the first night of each month.
//
// Timelines, which are larger than all else, are kept of the last Timelines
// nights, and programs as long as a pin has them. If all that takes more than
// MaxBytes, the oldest go, timelines before records, pins and the newest night's
// excepted.
type Retention struct {
	Full      int   `json:"full"`
	Weeks     int   `json:"weeks"`
	Timelines int   `json:"timelines"`
	MaxBytes  int64 `json:"max_bytes"`
}

// DefaultRetention keeps a month whole, a year's weeks and a week's timelines in
// 2 GiB.
func DefaultRetention() Retention {
	return Retention{Full: 30, Weeks: 52, Timelines: 7, MaxBytes: 2 << 30}
}

// Thin removes records by the rule, those of no night, which one that was
// killed left behind, and programs of no pin; keep names files of the night
// under way. It says what it removed, and what all records and programs take
// now. Where pins and the newest night alone take more than the limit, over says
// by how much.
func (s *Store) Thin(rule Retention, keep []string) (removed []string, bytes, over int64, err error) {
	defer s.lock()()
	nights, err := s.List()
	if err != nil {
		return nil, 0, 0, err
	}
	pins, err := s.Pins()
	if err != nil {
		return nil, 0, 0, err
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, recordsDir))
	if err != nil {
		return nil, 0, 0, fmt.Errorf("read the history's records: %w", err)
	}
	fixed := map[string]bool{}
	for _, p := range pins {
		fixed[p.Record.File] = true
		if p.Program != nil {
			fixed[p.Program.File] = true
		}
	}
	for _, name := range keep {
		fixed[name] = true
	}
	// age is how old a file's newest night is, in nights; of a file of no night
	// there is none.
	stay, age := map[string]bool{}, map[string]int{}
	for i, n := range nights {
		kept := rule.keeps(nights, i)
		for _, r := range n.Records {
			stay[r.File] = stay[r.File] || kept && r.Role != RoleTimeline || r.Role == RoleTimeline && len(nights)-i <= rule.Timelines
			age[r.File] = len(nights) - i
			fixed[r.File] = fixed[r.File] || i == len(nights)-1
		}
	}
	programs, err := os.ReadDir(filepath.Join(s.dir, programsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, fmt.Errorf("read the history's programs: %w", err)
	}
	size, in := map[string]int64{}, map[string]string{}
	var old []string
	for dir, entries := range map[string][]fs.DirEntry{recordsDir: entries, programsDir: programs} {
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue // nothing that was kept
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, 0, 0, fmt.Errorf("read the history's records: %w", err)
			}
			size[e.Name()], in[e.Name()] = info.Size(), dir
			bytes += info.Size()
			old = append(old, e.Name())
		}
	}
	slices.Sort(old)
	slices.SortStableFunc(old, func(a, b string) int { return age[b] - age[a] })
	drop := func(name string) error {
		if err := os.Remove(filepath.Join(s.dir, in[name], name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("thin the history: %w", err)
		}
		removed, bytes = append(removed, name), bytes-size[name]
		return nil
	}
	for _, name := range old {
		if !fixed[name] && !stay[name] {
			if err := drop(name); err != nil {
				return removed, bytes, 0, err
			}
		}
	}
	for _, timelines := range []bool{true, false} {
		for _, name := range old {
			if rule.MaxBytes > 0 && bytes > rule.MaxBytes && !fixed[name] && stay[name] && strings.HasSuffix(name, timelineSuffix) == timelines {
				if err := drop(name); err != nil {
					return removed, bytes, 0, err
				}
			}
		}
	}
	if rule.MaxBytes > 0 {
		over = max(0, bytes-rule.MaxBytes)
	}
	return removed, bytes, over, nil
}

// keeps says whether the rule keeps the records of a night. A night without any,
// such as one that was abandoned, is not the first of its week or month.
func (r Retention) keeps(nights []Brief, i int) bool {
	before := i - 1
	for before >= 0 && len(nights[before].Records) == 0 {
		before--
	}
	if len(nights)-i <= r.Full || before < 0 {
		return true
	}
	was, at, newest := nights[before].Began, nights[i].Began, nights[len(nights)-1].Began
	wasYear, wasWeek := was.ISOWeek()
	year, week := at.ISOWeek()
	if (year != wasYear || week != wasWeek) && newest.Sub(at) <= time.Duration(r.Weeks)*7*24*time.Hour {
		return true
	}
	return at.Year() != was.Year() || at.Month() != was.Month()
}
