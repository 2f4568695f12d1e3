package data

import (
	"bytes"
	"testing"
)

// copyPast copies what copy copies, and no byte beside, at every alignment.
func TestCopyPast(t *testing.T) {
	src := make([]byte, 4096)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	for _, n := range []int{0, 1, 63, 1023, 1024, 1025, 1087, 1088, 2000, 3000} {
		for _, more := range []int{0, 5} {
			for at := range 17 {
				for from := range 3 {
					got, want := bytes.Repeat([]byte{0xee}, 4096), bytes.Repeat([]byte{0xee}, 4096)
					g := copyPast(got[at:at+n], src[from:from+n+more])
					w := copy(want[at:at+n], src[from:from+n+more])
					if g != w || !bytes.Equal(got, want) {
						t.Fatalf("%d bytes of %d from %d to %d: %d copied, %d wanted, equal %v", n, n+more, from, at, g, w, bytes.Equal(got, want))
					}
				}
			}
		}
	}
	if n := copyPast(make([]byte, 2000), src[:1500]); n != 1500 {
		t.Errorf("%d bytes of 1500 into 2000", n)
	}
}

// BenchmarkCopy compares both, over a batch of 9.6 MB.
func BenchmarkCopy(b *testing.B) {
	src, dst := make([]byte, 4<<20), make([]byte, 9633792)
	for name, f := range map[string]func(dst, src []byte) int{
		"copy": func(dst, src []byte) int { return copy(dst, src) }, "past": copyPast,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				for d := dst; len(d) > 0; {
					d = d[f(d[:min(len(d), 150528)], src[len(d)%(4<<20-150528):]):]
				}
			}
		})
	}
}
