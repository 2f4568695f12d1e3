package nvtx

import (
	"math"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Color is 0xAARRGGBB; 0 leaves it to the tool.
type Color uint32

// Look is how a range appears beside its name.
type Look struct {
	Category string // empty for none
	Color    Color
}

const (
	colorARGB = 1

	payloadNone   = 0
	payloadInt    = 2
	payloadDouble = 3

	messageNone       = 0
	messageText       = 1
	messageRegistered = 3
)

// attributes is nvtxEventAttributes_t, version 3.
type attributes struct {
	version, size uint16
	category      uint32
	colorType     int32
	color         uint32
	payloadType   int32
	_             int32
	payload       uint64
	messageType   int32
	_             int32
	message       uintptr
}

// Range is a name and its look, laid out for a tool. It can be pushed, started
// and marked any number of times, without allocation. A range that is given
// values is used by one thread at a time, because the value lies in it; others
// may be used by all threads at once. Nil is no tool.
type Range struct {
	c     *Client
	attrs *attributes
	// args are the domain and the attributes; functions without a domain take
	// what is behind it.
	args [2]uintptr
}

// Range lays out a range. It is nil without a tool, or with one that takes no
// ranges.
func (c *Client) Range(name string, look Look) *Range {
	if c == nil || c.Deaf() {
		return nil
	}
	p, err := c.tables.mem.alloc(int(unsafe.Sizeof(attributes{})))
	if err != nil {
		return nil
	}
	r := &Range{c: c, attrs: (*attributes)(p), args: [2]uintptr{c.domain, uintptr(p)}}
	*r.attrs = attributes{version: version, size: uint16(unsafe.Sizeof(attributes{})), category: c.category(look.Category)}
	if look.Color != 0 {
		r.attrs.colorType, r.attrs.color = colorARGB, uint32(look.Color)
	}
	r.attrs.messageType, r.attrs.message = c.message(name)
	return r
}

// do makes a call with the range's attributes.
func (r *Range) do(k *call) uintptr {
	f := k.slot.addr()
	if f == 0 {
		return 0
	}
	args := r.args[:]
	if !k.domain {
		args = args[1:]
	}
	out, _, _ := purego.SyscallN(f, args...)
	return out
}

func (r *Range) setInt(v int64) { r.attrs.payloadType, r.attrs.payload = payloadInt, uint64(v) }
func (r *Range) setFloat(v float64) {
	r.attrs.payloadType, r.attrs.payload = payloadDouble, math.Float64bits(v)
}

// Push begins the range on the calling OS thread, which the caller has locked
// until the matching Pop; ranges of a thread nest. Source:
// nvtxDomainRangePushEx.
func (r *Range) Push() {
	if r != nil {
		r.do(&r.c.push)
	}
}

// PushInt is Push with a value, which the range keeps.
func (r *Range) PushInt(v int64) {
	if r != nil {
		r.setInt(v)
		r.do(&r.c.push)
	}
}

// Pop ends the range that the thread pushed last, whichever that is. Source:
// nvtxDomainRangePop.
func (r *Range) Pop() {
	if r != nil {
		r.pop()
	}
}

func (r *Range) pop() {
	k := &r.c.pop
	f := k.slot.addr()
	if f == 0 {
		return
	}
	args := r.args[:1]
	if !k.domain {
		args = nil
	}
	purego.SyscallN(f, args...)
}

// Mark marks this moment. Source: nvtxDomainMarkEx.
func (r *Range) Mark() {
	if r != nil {
		r.do(&r.c.mark)
	}
}

// MarkInt and MarkFloat are Mark with a value, which the range keeps.
func (r *Range) MarkInt(v int64) {
	if r != nil {
		r.setInt(v)
		r.do(&r.c.mark)
	}
}

// MarkFloat is [Range.MarkInt] with a fraction.
func (r *Range) MarkFloat(v float64) {
	if r != nil {
		r.setFloat(v)
		r.do(&r.c.mark)
	}
}

// Span is a range that was started and may end on another thread. The zero
// Span is none.
type Span struct {
	c  *Client
	id uintptr // nvtxRangeId_t, 64 bits
}

// Start begins the range for the process. Spans may overlap. Source:
// nvtxDomainRangeStartEx.
func (r *Range) Start() Span {
	if r == nil {
		return Span{}
	}
	return Span{r.c, r.do(&r.c.start)}
}

// StartInt is Start with a value, which the range keeps.
func (r *Range) StartInt(v int64) Span {
	if r == nil {
		return Span{}
	}
	r.setInt(v)
	return r.Start()
}

// End ends the span. Source: nvtxDomainRangeEnd.
func (s Span) End() {
	if s.c == nil {
		return
	}
	k := &s.c.end
	f := k.slot.addr()
	if f == 0 {
		return
	}
	args := [2]uintptr{s.c.domain, s.id}
	if k.domain {
		purego.SyscallN(f, args[0], args[1])
		return
	}
	purego.SyscallN(f, args[1])
}

// Start starts a span by name, for what happens too seldom to keep a range for.
func (c *Client) Start(name string, look Look) Span {
	if c == nil {
		return Span{}
	}
	return c.Range(name, look).Start()
}

// StartInt is [Client.Start] with a value.
func (c *Client) StartInt(name string, look Look, v int64) Span {
	if c == nil {
		return Span{}
	}
	return c.Range(name, look).StartInt(v)
}
