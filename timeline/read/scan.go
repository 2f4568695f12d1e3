package read

import (
	"encoding/binary"
	"math/bits"
)

// status says how an attempt to read one JSON value ended.
type status uint8

const (
	good   status = iota
	short         // the bytes at hand end before the value does
	bad           // this is not JSON, at scanner.at
	deep          // nested deeper than maxDepth
	inside        // of closes alone: the quote is part of its text
)

// maxDepth is how deep values may be nested. Traces nest 4 deep.
const maxDepth = 512

// valueKind says what a value is.
type valueKind uint8

const (
	absent valueKind = iota
	text
	number
	literal // null, true, false
	object
	array
	notNumber // NaN and Infinity, which are not JSON
)

// value is one JSON value where it stands. raw has no quotes; escaped says that
// it has backslashes.
type value struct {
	raw     []byte
	kind    valueKind
	escaped bool
}

// scanner reads JSON values from bytes that are there as a whole. encoding/json
// is not used for events: it cannot go on behind an error, allocates for each
// value and takes about six times as long.
//
// Some departures from JSON leave no doubt about what is meant, and are read and
// reported by odd: control bytes and unknown escapes in texts, NaN. With lenient
// set, a quote inside a text that nothing structural follows belongs to the
// text.
type scanner struct {
	lenient bool
	odd     bool
	at      int // where bad was found
	stack   []byte
	event   event
}

func blank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func skipBlanks(b []byte, i int) int {
	for i < len(b) && blank(b[i]) {
		i++
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special finds the first quote, backslash or control byte from i on, eight
// bytes at a time; len(b) if there is none.
func special(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		quote, slash := v^(ones*'"'), v^(ones*'\\')
		// A byte's high bit is set where it is zero or below 0x20. Borrows can
		// set bits above a true hit only, and the lowest one counts.
		found := ((quote-ones)&^quote | (slash-ones)&^slash | (v-ones*0x20)&^v) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < 0x20 {
			return i
		}
	}
	return i
}

// where a text stands decides what may follow it.
type place uint8

const (
	asKey place = iota
	inObject
	inArray
)

// text reads a text whose opening quote is before i; next is behind the closing
// one.
func (s *scanner) text(b []byte, i int, p place) (v value, next int, st status) {
	from := i
	for {
		i = special(b, i)
		if i >= len(b) {
			return value{}, i, short
		}
		switch c := b[i]; {
		case c == '"':
			if s.lenient {
				switch s.closes(b, i+1, p) {
				case short:
					return value{}, i, short
				case bad:
					s.at = i
					return value{}, i, bad
				case inside:
					s.odd = true
					i++
					continue
				}
			}
			v.raw, v.kind = b[from:i], text
			return v, i + 1, good
		case c == '\\':
			if i+1 >= len(b) {
				return value{}, i, short
			}
			v.escaped = true
			switch b[i+1] {
			case '"':
				if s.lenient && s.closesForSure(b, i+2, p) {
					// A path that ends in a backslash, written as it is.
					s.odd = true
					v.raw, v.kind = b[from:i+1], text
					return v, i + 2, good
				}
				i += 2
			case '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) {
					return value{}, i, short
				}
				if hex4(b[i+2:i+6]) < 0 {
					s.odd = true
					i++
					continue
				}
				i += 6
			default:
				s.odd = true
				i++
			}
		default: // a control byte
			s.odd = true
			i++
		}
	}
}

// closes tells, leniently, whether the quote before i ends its text: good, or
// inside if it is part of the text, or short if that cannot be told yet. It is
// bad where another guess is better: keys have no quotes, and a quote before a
// colon ends a key, so that a text that reached there has lost its own end.
func (s *scanner) closes(b []byte, i int, p place) status {
	i = skipBlanks(b, i)
	if i >= len(b) {
		return short
	}
	switch c := b[i]; {
	case p == asKey:
		if c == ':' {
			return good
		}
		return bad
	case c == ':':
		return bad
	case c == '}' && p == inObject, c == ']' && p == inArray:
		return good
	case c == ',':
		if p == inArray {
			return good
		}
		if i = skipBlanks(b, i+1); i >= len(b) {
			return short
		}
		if b[i] == '"' || b[i] == '}' {
			return good
		}
	}
	return inside
}

// closesForSure is closes for a quote behind a backslash: a key and a colon must
// follow.
func (s *scanner) closesForSure(b []byte, i int, p place) bool {
	if p != inObject {
		return false
	}
	if i = skipBlanks(b, i); i >= len(b) || b[i] != ',' {
		return false
	}
	if i = skipBlanks(b, i+1); i >= len(b) || b[i] != '"' {
		return false
	}
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' || b[i] < 0x20 {
			return false
		}
	}
	i = skipBlanks(b, i+1)
	return i < len(b) && b[i] == ':'
}

// value reads one value that begins at b[i].
func (s *scanner) value(b []byte, i int, p place) (v value, next int, st status) {
	if i >= len(b) {
		return v, i, short
	}
	switch c := b[i]; {
	case c == '"':
		return s.text(b, i+1, p)
	case c == '{' || c == '[':
		next, st = s.skip(b, i)
		if st == good {
			v.raw, v.kind = b[i:next], object
			if c == '[' {
				v.kind = array
			}
		}
		return v, next, st
	}
	return s.word(b, i)
}

// word reads a number or a literal.
func (s *scanner) word(b []byte, i int) (v value, next int, st status) {
	from := i
	for i < len(b) && wordByte[b[i]] {
		i++
	}
	if i >= len(b) {
		return v, i, short
	}
	if i == from {
		s.at = i
		return v, i, bad
	}
	v.raw = b[from:i]
	switch c := v.raw[0]; {
	case isNumber(v.raw):
		v.kind = number
	case c == 'n' || c == 't' || c == 'f':
		if w := string(v.raw); w == "null" || w == "true" || w == "false" {
			v.kind = literal
		}
	}
	if v.kind == absent {
		switch string(v.raw) {
		case "NaN", "nan", "-nan", "-NaN", "Infinity", "-Infinity", "inf", "-inf", "Inf", "-Inf":
			v.kind = notNumber
			s.odd = true
		case "None", "True", "False": // Python's words
			v.kind = literal
			s.odd = true
		default:
			s.at = from
			return v, from, bad
		}
	}
	return v, i, good
}

var wordByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '-' || c == '.'
	}
	return t
}()

// isNumber is JSON's grammar of numbers.
func isNumber(b []byte) bool {
	i := 0
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if b[0] == '-' {
		i++
	}
	if from := i; !digits() || b[from] == '0' && i > from+1 {
		return false
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(b)
}

// skip goes over an object or an array at b[i], checking its grammar, without
// recursion.
func (s *scanner) skip(b []byte, i int) (next int, st status) {
	s.stack = s.stack[:0]
	for {
		// A value is due.
		i = skipBlanks(b, i)
		if i >= len(b) {
			return i, short
		}
		switch c := b[i]; c {
		case '{', '[':
			if len(s.stack) >= maxDepth {
				s.at = i
				return i, deep
			}
			i = skipBlanks(b, i+1)
			if i >= len(b) {
				return i, short
			}
			if b[i] == c+2 { // the closing one
				i++
				break
			}
			s.stack = append(s.stack, c)
			if c == '{' {
				if i, st = s.key(b, i); st != good {
					return i, st
				}
			}
			continue
		case '"':
			p := inArray
			if s.stack[len(s.stack)-1] == '{' {
				p = inObject
			}
			if _, i, st = s.text(b, i+1, p); st != good {
				return i, st
			}
		default:
			if _, i, st = s.word(b, i); st != good {
				return i, st
			}
		}
		// A value has ended.
		for {
			if len(s.stack) == 0 {
				return i, good
			}
			i = skipBlanks(b, i)
			if i >= len(b) {
				return i, short
			}
			top := s.stack[len(s.stack)-1]
			if b[i] == top+2 {
				s.stack = s.stack[:len(s.stack)-1]
				i++
				continue
			}
			if b[i] != ',' {
				s.at = i
				return i, bad
			}
			i = skipBlanks(b, i+1)
			if i >= len(b) {
				return i, short
			}
			if b[i] == top+2 { // a comma before the end
				s.odd = true
				continue
			}
			if top == '{' {
				if i, st = s.key(b, i); st != good {
					return i, st
				}
			}
			break
		}
	}
}

// key goes over a key and its colon.
func (s *scanner) key(b []byte, i int) (next int, st status) {
	_, next, st = s.keyed(b, i)
	return next, st
}

func (s *scanner) keyed(b []byte, i int) (k value, next int, st status) {
	if b[i] != '"' {
		s.at = i
		return k, i, bad
	}
	if k, i, st = s.text(b, i+1, asKey); st != good {
		return k, i, st
	}
	if i = skipBlanks(b, i); i >= len(b) {
		return k, i, short
	}
	if b[i] != ':' {
		s.at = i
		return k, i, bad
	}
	return k, i + 1, good
}

// members calls visit for each member of an object at b[i], with the place of
// its value; visit returns where the value ends.
func (s *scanner) members(b []byte, i int, visit func(key value, i int) (int, status)) (next int, st status) {
	i = skipBlanks(b, i+1)
	if i >= len(b) {
		return i, short
	}
	if b[i] == '}' {
		return i + 1, good
	}
	for {
		var k value
		if k, i, st = s.keyed(b, i); st != good {
			return i, st
		}
		if i = skipBlanks(b, i); i >= len(b) {
			return i, short
		}
		if i, st = visit(k, i); st != good {
			return i, st
		}
		if i = skipBlanks(b, i); i >= len(b) {
			return i, short
		}
		switch b[i] {
		case '}':
			return i + 1, good
		case ',':
		default:
			s.at = i
			return i, bad
		}
		if i = skipBlanks(b, i+1); i >= len(b) {
			return i, short
		}
		if b[i] == '}' {
			s.odd = true
			return i + 1, good
		}
	}
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
