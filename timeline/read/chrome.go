package read

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/tech-renaissance/trbench/timeline"
)

// MaxEvents is how many events of a recording are kept; those beyond are counted
// as lost. A million takes some 50 MB.
const maxEvents = 100 << 20

// chromeReader reads Chrome JSON from a window.
type chromeReader struct {
	w      *window
	s      scanner
	o      Options
	source string
	k      *kineto

	// inObject says that the events are a member of an object.
	inObject bool
	found    bool // a list of events
	keys     []string
	// behind says that something was just lost.
	behind bool
	// budget is how many bytes salvaging may look at; it grows with what is
	// read, so that hostile files take time in proportion to their length.
	budget int64
}

func chrome(in io.Reader, source string, o Options) (*timeline.Timeline, error) {
	r := &chromeReader{w: newWindow(in), o: o, source: source, k: newKineto(), budget: 64 << 20}
	defer r.w.close()
	t := &r.k.b.T
	t.Source, t.Format = source, timeline.FormatKineto
	if err := r.read(); err != nil {
		var e *Error
		if errors.As(err, &e) {
			return nil, err
		}
		return nil, &Error{File: source, Reason: err.Error(), Err: err}
	}
	t.Read.Bytes = r.w.offset() + int64(len(r.w.rest()))
	r.k.finish()
	return t, nil
}

// report is where what was lost is kept.
func (r *chromeReader) report() *timeline.ReadReport { return &r.k.b.T.Read }

func (r *chromeReader) fail(reason, hint string) error {
	return &Error{File: r.source, Reason: reason, Hint: hint}
}

// repaired counts something invalid at an offset that was understood.
func (r *chromeReader) repaired(at int64, what string) error {
	if r.o.Strict {
		return r.fail(fmt.Sprintf("is not valid JSON at byte %d: %s", at, what), "without --strict it is read as far as it can be understood")
	}
	d := r.report()
	if d.Repaired == 0 {
		d.RepairedAt = at
	}
	d.Repaired++
	return nil
}

// truncated marks that the file ends too soon.
func (r *chromeReader) truncated(what string) error {
	at := r.w.offset() + int64(len(r.w.rest()))
	if r.o.Strict {
		return r.fail(fmt.Sprintf("ends at byte %d: %s", at, r.why(what)), "without --strict it is read as far as it can be understood")
	}
	d := r.report()
	d.Truncated = true
	d.Notes = append(d.Notes, fmt.Sprintf("The file ends at byte %d: %s.", at, r.why(what)))
	return nil
}

// why prefers the reason that the stream itself gave.
func (r *chromeReader) why(what string) string {
	switch err := r.w.err; {
	case err == nil:
		return what
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "its packed bytes are cut short"
	default:
		return "reading on failed (" + err.Error() + ")"
	}
}

func (r *chromeReader) read() error {
	w := r.w
	for len(w.rest()) < len(byteOrderMark) && w.more() {
	}
	if bytes.HasPrefix(w.rest(), []byte(byteOrderMark)) {
		w.pos += len(byteOrderMark)
	}
	if !w.blanks() {
		return r.fail("is empty", "")
	}
	var err error
	switch w.buf[w.pos] {
	case '[':
		w.pos++
		r.found = true
		err = r.events()
	case '{':
		w.pos++
		r.inObject = true
		err = r.members()
	default:
		return r.fail("is no JSON", known)
	}
	if err != nil {
		return err
	}
	if !r.found {
		return r.noEvents()
	}
	// What follows is not part of the trace, but somebody should know.
	if w.blanks() {
		at := w.offset()
		n := int64(0)
		for ok := true; ok; ok = w.more() {
			n += int64(len(w.rest()))
			w.pos = len(w.buf)
		}
		if r.o.Strict {
			return r.fail(fmt.Sprintf("goes on behind its end, at byte %d", at), "")
		}
		r.lost(at, n, 0)
	}
	if w.err != nil && !r.report().Truncated {
		return r.truncated("")
	}
	return nil
}

func (r *chromeReader) noEvents() error {
	switch {
	case slices.Contains(r.keys, "schema") && slices.Contains(r.keys, "cells"):
		return r.fail("is a record of trbench run, not a trace", "trbench report makes tables and plots of it")
	case r.report().Truncated:
		return r.fail("ends before its events begin", "")
	}
	return r.fail("is JSON without traceEvents, so no trace", known)
}

// lost counts bytes that could not be understood.
func (r *chromeReader) lost(at, n, events int64) {
	d := r.report()
	if d.LostBytes == 0 && n > 0 {
		d.LostAt = at
	}
	d.LostBytes += n
	d.LostEvents += events
}

// members reads the members of the outermost object.
func (r *chromeReader) members() error {
	w := r.w
	comma := true // one would be too many
	for {
		if !w.blanks() {
			return r.truncated("the closing } is missing")
		}
		switch w.buf[w.pos] {
		case '}':
			w.pos++
			return nil
		case ',':
			if comma {
				if err := r.repaired(w.offset(), "a comma too many"); err != nil {
					return err
				}
			}
			comma = true
			w.pos++
			continue
		}
		comma = false
		var key string
		st := r.attempt(func(b []byte, i int) (int, status) {
			v, next, st := r.s.keyed(b, i)
			if st == good {
				key = string(v.raw)
			}
			return next, st
		})
		if st == good && len(r.keys) < 1000 {
			r.keys = append(r.keys, key)
		}
		if st == good && w.blanks() {
			if key == "traceEvents" && w.buf[w.pos] == '[' {
				w.pos++
				r.found = true
				if err := r.events(); err != nil {
					return err
				}
				continue
			}
			r.s.odd = false
			st = r.attempt(func(b []byte, i int) (int, status) {
				v, next, st := r.s.value(b, i, inObject)
				if st == good {
					r.k.outer(key, v)
				}
				return next, st
			})
			if st == good {
				if r.s.odd && key != "traceEvents" {
					if err := r.repaired(w.offset(), fmt.Sprintf("the value of %q", key)); err != nil {
						return err
					}
				}
				continue
			}
		}
		// The object cannot be followed any more; its events may be.
		if err := r.findEvents(st, key); err != nil || !r.found {
			return err
		}
	}
}

// findEvents goes to the list of events behind something that cannot be read.
func (r *chromeReader) findEvents(st status, key string) error {
	w := r.w
	at := w.offset()
	what := fmt.Sprintf("the member %q cannot be read", key)
	if st == deep {
		what = fmt.Sprintf("the member %q is nested deeper than %d levels", key, maxDepth)
	}
	if r.o.Strict {
		return r.fail(fmt.Sprintf("is not valid JSON at byte %d: %s", at, what), "without --strict it is read as far as it can be understood")
	}
	const word = `"traceEvents"`
	had := r.found
	for !had {
		i := bytes.Index(w.rest(), []byte(word))
		if i < 0 {
			w.pos = max(w.pos, len(w.buf)-len(word))
			if !w.more() {
				break
			}
			continue
		}
		w.pos += i + len(word)
		if w.blanks() && w.buf[w.pos] == ':' {
			w.pos++
			if w.blanks() && w.buf[w.pos] == '[' {
				w.pos++
				r.found = true
				r.lost(at, w.offset()-at, 0)
				return r.events()
			}
		}
	}
	for w.more() {
		w.pos = len(w.buf)
	}
	w.pos = len(w.buf)
	r.lost(at, w.offset()-at, 0)
	if st == deep && !had {
		return r.fail(what, "")
	}
	return r.truncated(what)
}

// attempt runs a parser on what is unread, reading on until that suffices. At
// the end of the file, or beyond maxValueBytes, short stays.
func (r *chromeReader) attempt(parse func(b []byte, i int) (int, status)) status {
	for {
		next, st := parse(r.w.buf, r.w.pos)
		switch {
		case st == good:
			r.w.pos = next
		case st == short && r.grow(maxValueBytes):
			continue
		}
		return st
	}
}

// grow reads half as much again as is unread, so that trying again from the
// start stays linear; false at the file's end or at the limit.
func (r *chromeReader) grow(limit int) bool {
	had := len(r.w.rest())
	if had >= limit {
		return false
	}
	for r.w.more() {
		if len(r.w.rest()) > had+had/2 {
			return true
		}
	}
	return len(r.w.rest()) > had
}

// events reads the list of events behind its bracket.
func (r *chromeReader) events() error {
	w := r.w
	comma, first := false, true
	for {
		if !w.blanks() {
			return r.truncated("the closing ] is missing")
		}
		c := w.buf[w.pos]
		if r.behind {
			// Behind something that was lost any separator will do.
			r.behind, first, comma = false, c != ',', false
		}
		if c == '{' || c == '[' {
			if !comma && !first {
				if err := r.repaired(w.offset(), "a comma is missing"); err != nil {
					return err
				}
			}
		}
		switch {
		case c == ']':
			if comma {
				if err := r.repaired(w.offset(), "a comma too many"); err != nil {
					return err
				}
			}
			w.pos++
			return nil
		case c == ',':
			if comma || first {
				if err := r.repaired(w.offset(), "a comma too many"); err != nil {
					return err
				}
			}
			comma, first = true, false
			w.pos++
			continue
		case c == '{':
			if err := r.event(); err != nil {
				return err
			}
		case r.inObject && (c == '}' || c == '"' && r.isKey()):
			// The list was never closed; what comes belongs to the object.
			return r.repaired(w.offset(), "the closing ] of the events is missing")
		default:
			r.s.odd = false
			if st := r.attempt(func(b []byte, i int) (int, status) {
				_, next, st := r.s.value(b, i, inArray)
				return next, st
			}); st != good {
				if err := r.resync(); err != nil {
					return err
				}
			}
		}
		comma, first = false, false
	}
}

// isKey tells whether a text in the list is a key of the object around it.
func (r *chromeReader) isKey() bool {
	at := r.w.offset()
	st := r.attempt(func(b []byte, i int) (int, status) { return r.s.key(b, i) })
	r.w.pos = int(at - r.w.base)
	return st == good
}

// event reads one event, at its brace.
func (r *chromeReader) event() error {
	w := r.w
	for {
		next, st := r.s.parse(w.buf, w.pos)
		switch {
		case st == good:
			if r.s.odd {
				if err := r.repaired(w.offset(), "an event has something in it that JSON does not know"); err != nil {
					return err
				}
			}
			r.accept()
			r.budget = min(r.budget+int64(next-w.pos)*4, 256<<20)
			w.pos = next
			return nil
		case st == short && r.grow(maxValueBytes):
			continue
		case r.o.Strict && st == short && w.ended:
			return r.truncated("it stops within an event")
		case r.o.Strict:
			what := "an event cannot be read"
			if st == deep {
				what = fmt.Sprintf("an event is nested deeper than %d levels", maxDepth)
			}
			return r.fail(fmt.Sprintf("is not valid JSON at byte %d: %s", w.base+int64(r.s.at), what),
				"without --strict it is read as far as it can be understood")
		}
		return r.salvage()
	}
}

func (r *chromeReader) accept() {
	if r.k.kept >= maxEvents {
		r.report().LostEvents++
		if !r.report().Truncated {
			r.report().Truncated = true
			r.report().Notes = append(r.report().Notes, fmt.Sprintf("Only the first %d events are kept.", maxEvents))
		}
		return
	}
	r.k.accept(&r.s.event)
}

// maxSalvage is how long a damaged event may be.
const maxSalvage = 1 << 20

// salvage is for an event that is not JSON: a guess at what is meant, or the
// next event that is.
func (r *chromeReader) salvage() error {
	w := r.w
	for r.budget > 0 {
		b := w.buf[:min(len(w.buf), w.pos+maxSalvage)]
		r.s.lenient = true
		next, st := r.s.parse(b, w.pos)
		r.s.lenient = false
		r.budget -= int64(max(next, r.s.at) - w.pos)
		if st == short && len(b) < w.pos+maxSalvage && r.grow(maxSalvage) {
			continue
		}
		if st == good && r.plausible(next) {
			if err := r.repaired(w.offset(), "an event has quotes inside a text"); err != nil {
				return err
			}
			r.accept()
			w.pos = next
			return nil
		}
		break
	}
	return r.resync()
}

// plausible tells whether what was read may be an event: it has a phase, and
// another event or the end follows.
func (r *chromeReader) plausible(next int) bool {
	if r.s.event.ph.kind != text || len(r.s.event.ph.raw) != 1 {
		return false
	}
	i := skipBlanks(r.w.buf, next)
	if i >= len(r.w.buf) {
		return true // nothing contradicts
	}
	c := r.w.buf[i]
	return c == ',' || c == ']' || c == '}' || c == '{'
}

// resync goes to the next event that can be read, or to the end of the list,
// and counts what it passes as lost.
func (r *chromeReader) resync() error {
	w := r.w
	at := w.offset()
	if r.o.Strict {
		return r.fail(fmt.Sprintf("is not valid JSON at byte %d", at), "without --strict it is read as far as it can be understood")
	}
	r.behind = true
	events := int64(0)
	pass := func(to int) { // leave bytes behind
		events += int64(bytes.Count(w.buf[w.pos:to], []byte(`"ph"`)))
		w.pos = to
	}
	defer func() { r.lost(at, w.offset()-at, max(1, events)) }()
	pass(w.pos + 1)
	for {
		i := bytes.IndexAny(w.rest(), "{]")
		if i < 0 {
			pass(max(w.pos, len(w.buf)-16)) // a blank or a comma before a brace counts
			if w.more() {
				continue
			}
			pass(len(w.buf))
			return r.truncated("it stops within an event")
		}
		i += w.pos
		if len(w.buf)-i < 4096 && r.grow(max(2*len(w.rest()), 8192)) {
			continue // see enough of what follows; places have moved
		}
		if w.buf[i] == ']' {
			if r.ends(i) {
				pass(i)
				return nil
			}
			pass(i + 1)
			continue
		}
		if j := skipBlanks(w.buf, i+1); j < len(w.buf) && w.buf[j] == '"' && follows(w.buf, i) && r.budget > 0 {
			next, st := r.s.parse(w.buf, i)
			if st == short {
				pass(i)
				if r.grow(maxSalvage) {
					// Try again with more: stay before this brace.
					continue
				}
			}
			r.budget -= int64(max(next, i+1) - i)
			if st == good && r.plausible(next) {
				pass(i)
				return nil
			}
			if st == deep {
				pass(min(max(r.s.at, i+1), len(w.buf)))
				continue
			}
		}
		pass(i + 1)
	}
}

// follows tells whether an event may begin at b[i]: a member's value may not.
func follows(b []byte, i int) bool { return before(b, i) != ':' }

// before is the last byte before b[i] that is no blank; 0 if there is none.
func before(b []byte, i int) byte {
	for i--; i >= 0; i-- {
		if !blank(b[i]) {
			return b[i]
		}
	}
	return 0
}

// ends tells whether the bracket at i closes the events: lists inside of events
// end as often.
func (r *chromeReader) ends(i int) bool {
	b := r.w.buf
	if c := before(b, i); c != '}' && c != ',' {
		return false // a list of numbers or texts
	}
	j := skipBlanks(b, i+1)
	if j < len(b) && b[j] == '}' && r.inObject {
		j = skipBlanks(b, j+1)
	}
	if j >= len(b) {
		return r.w.ended
	}
	if b[j] != ',' {
		return false
	}
	j = skipBlanks(b, j+1)
	for _, k := range [...]string{`"traceName"`, `"displayTimeUnit"`, `"baseTimeNanoseconds"`, `"deviceProperties"`, `"distributedInfo"`, `"schemaVersion"`} {
		if bytes.HasPrefix(b[j:], []byte(k)) {
			return true
		}
	}
	return false
}

// decode reads a small member of the outermost object.
func decode(v value, to any) error {
	d := json.NewDecoder(bytes.NewReader(v.raw))
	d.UseNumber()
	return d.Decode(to)
}

// asInt is a JSON number or a text with one in it.
func asInt(v any) (int64, bool) {
	var s string
	switch v := v.(type) {
	case json.Number:
		s = v.String()
	case string:
		s = v
	}
	n, err := json.Number(s).Int64()
	return n, err == nil && n <= math.MaxInt32 && n >= 0
}
