package read

import (
	"io"
)

// chunkBytes is how much is read at a time, and maxValueBytes how long one JSON
// value may be: an event of a call with all its shapes and its stack takes some
// kilobytes.
const (
	chunkBytes    = 1 << 20
	maxValueBytes = 64 << 20
)

// chunk is a piece of a file, and how the file ended behind it.
type chunk struct {
	b   []byte
	err error
}

// window is the part of a stream at hand: buf[pos:] is unread, and base+pos is
// its offset. The stream is read, and unpacked, by a goroutine of its own, at
// most four chunks ahead.
type window struct {
	chunks chan chunk
	free   chan []byte
	stop   chan struct{}

	buf  []byte
	pos  int
	base int64
	// ended says that no more will come; err is why, nil for the stream's end.
	ended bool
	err   error
}

func newWindow(r io.Reader) *window {
	w := &window{chunks: make(chan chunk, 4), free: make(chan []byte, 6), stop: make(chan struct{})}
	go w.fill(r)
	return w
}

func (w *window) fill(r io.Reader) {
	var err error
	for err == nil {
		var b []byte
		select {
		case b = <-w.free:
			b = b[:cap(b)]
		default:
			b = make([]byte, chunkBytes)
		}
		n := 0
		for idle := 0; n < len(b) && err == nil; {
			var m int
			m, err = r.Read(b[n:])
			n += m
			if idle++; m > 0 {
				idle = 0
			} else if idle > 100 && err == nil {
				err = io.ErrNoProgress
			}
		}
		select {
		case w.chunks <- chunk{b[:n], err}:
		case <-w.stop:
			return
		}
	}
}

// close ends the reading goroutine.
func (w *window) close() { close(w.stop) }

// more reads on, keeping what is unread; false when there is no more, and then
// nothing has moved. Else slices of buf, and places in it, are invalid.
func (w *window) more() bool {
	if w.ended {
		return false
	}
	c := <-w.chunks
	if c.err != nil {
		w.ended = true
		if c.err != io.EOF {
			w.err = c.err
		}
	}
	if len(c.b) == 0 {
		return false // places stay
	}
	if w.pos > 0 {
		w.base += int64(w.pos)
		w.buf = w.buf[:copy(w.buf, w.buf[w.pos:])]
		w.pos = 0
	}
	w.buf = append(w.buf, c.b...)
	select {
	case w.free <- c.b[:0]:
	default:
	}
	return true
}

// offset is where the unread part begins.
func (w *window) offset() int64 { return w.base + int64(w.pos) }

// rest is the unread part.
func (w *window) rest() []byte { return w.buf[w.pos:] }

// blanks goes over blanks; false at the end of the stream.
func (w *window) blanks() bool {
	for {
		if w.pos = skipBlanks(w.buf, w.pos); w.pos < len(w.buf) {
			return true
		}
		if !w.more() {
			return false
		}
	}
}
