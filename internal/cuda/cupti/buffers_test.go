package cupti

import (
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestPool hands buffers back in another order than they were lent, and things
// that are no buffers.
func TestPool(t *testing.T) {
	p, err := newPool(3, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var lentOut []unsafe.Pointer
	for range 3 {
		b, n := p.request()
		if b == nil || n < 1000 || uintptr(b)%8 != 0 {
			t.Fatalf("buffer %v of %d", b, n)
		}
		lentOut = append(lentOut, b)
	}
	if b, n := p.request(); b != nil || n != 0 || p.refused.Load() != 1 {
		t.Errorf("a fourth of three: %v, %d", b, n)
	}
	for i, order := range []int{2, 0} {
		*(*byte)(lentOut[order]) = byte(order)
		p.complete(lentOut[order], uint64(i+1))
	}
	p.complete(lentOut[0], 5)                       // twice
	p.complete(unsafe.Add(lentOut[1], 8), 5)        // inside one
	p.complete(unsafe.Pointer(&p.strays), 5)        // none of these
	p.complete(unsafe.Add(lentOut[0], 3*p.size), 5) // right behind the last
	if n := p.strays.Load(); n != 4 {
		t.Errorf("%d strays", n)
	}
	if err := p.close(); err == nil || !strings.Contains(err.Error(), "1 buffers") {
		t.Errorf("closed with a buffer lent: %v", err)
	}
	var got []int
	p.take(func(b []byte) { got = append(got, int(b[0]), len(b)) })
	if !slices.Equal(got, []int{2, 1, 0, 2}) {
		t.Errorf("taken %v", got)
	}
	p.complete(lentOut[1], 1<<40) // more than it has
	p.take(func(b []byte) {
		if len(b) != p.size {
			t.Errorf("%d bytes", len(b))
		}
	})
	if b, _ := p.request(); b == nil {
		t.Error("a buffer that was read is not lent again")
	} else {
		p.complete(b, 0)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
