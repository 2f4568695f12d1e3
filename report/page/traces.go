package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// maxTimelineBytes bounds what all timelines of a page take: about 40 steps of
// 800 kernels that are launched one by one.
const maxTimelineBytes = 3_000_000

// maxMissing is how many timelines that are not there are named one by one.
const maxMissing = 6

// ReadTimelines finds the timelines that records name, in their Dir, and takes a
// step of each configuration. What is not found, cannot be read or has no room is
// said in notes; none of it is an error, as the records are whole without.
func ReadTimelines(records []report.Named) (out []Timeline, notes []string) {
	bytes, left, missing := 0, 0, 0
	miss := func(s Subject, err error) {
		if missing++; missing <= maxMissing {
			notes = append(notes, report.Plain(fmt.Sprintf("No timeline of %s, %s: %v.", s.Cell, s.Configuration, err)))
		}
	}
	for _, r := range records {
		for i := range r.Record.Cells {
			cell := &r.Record.Cells[i]
			for j := range cell.Configurations {
				conf := &cell.Configurations[j]
				if conf.Trace == nil {
					continue
				}
				s := subjectOf(r, cell, conf, len(records) > 1)
				if bytes >= maxTimelineBytes {
					left++
					continue
				}
				t, err := readTimeline(r.Dir, conf.Trace.File, s)
				if err != nil {
					miss(s, err)
					continue
				}
				raw, err := json.Marshal(t)
				if err != nil {
					miss(s, err)
					continue
				}
				if bytes+len(raw) > maxTimelineBytes {
					bytes = maxTimelineBytes // a smaller one that fits would hide that others do not
					left++
					continue
				}
				bytes += len(raw)
				out = append(out, *t)
			}
		}
	}
	if n := missing - maxMissing; n > 0 {
		notes = append(notes, fmt.Sprintf("%d more timelines are missing.", n))
	}
	if left > 0 {
		notes = append(notes, fmt.Sprintf("%d more timelines are left out: a page has room for %s of them. Make a page of fewer cells, or open the files beside the record.",
			left, report.Bytes(maxTimelineBytes)))
	}
	return out, notes
}

func subjectOf(r report.Named, cell *results.Cell, conf *results.Configuration, several bool) Subject {
	s := Subject{
		Cell:          report.Plain(cell.Key.Name()),
		Configuration: report.Plain(conf.Key.String()), Steps: conf.Trace.Steps, Source: report.Plain(filepath.Base(conf.Trace.File)),
	}
	if ns := conf.Key.DispatchNs; ns > 0 {
		s.Configuration += fmt.Sprintf(" +%s a launch", report.Duration(float64(ns)))
	}
	if several {
		s.Cell = report.Plain(r.Name) + ": " + s.Cell
	}
	if m := conf.Trace.Metric(results.Inflation); m != nil {
		s.Facts = append(s.Facts, fmt.Sprintf("recording makes a step %.2f times as long", m.Value))
	}
	if conf.Trace.Failed != "" {
		s.Doubts = append(s.Doubts, "The traced pass failed: "+report.Plain(conf.Trace.Failed)+".")
	}
	return s
}

// readTimeline reads a record's trace: where the record says, or else, as for a
// record that was moved, a file of that name beside it.
func readTimeline(dir, file string, s Subject) (*Timeline, error) {
	if file == "" {
		return nil, errors.New("the run kept none")
	}
	named := results.TraceFile(dir, file)
	paths := []string{named, filepath.Join(dir, filepath.Base(named))}
	var path string
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s cannot be looked at: %w", file, errors.Unwrap(err))
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s is no file", file)
		}
		path = p
		break
	}
	if path == "" {
		return nil, fmt.Errorf("%s is not beside the record", file)
	}
	t, err := read.File(path, read.Options{})
	if err != nil {
		var problem *read.Error
		if errors.As(err, &problem) {
			return nil, fmt.Errorf("%s %s", file, strings.TrimSuffix(problem.Reason, "."))
		}
		return nil, err
	}
	if read.Damaged(t.Read) {
		s.Doubts = append(s.Doubts, file+" is damaged; drawn is what could be understood.")
	}
	out, err := NewTimeline(timeline.NewIndex(t), s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}
