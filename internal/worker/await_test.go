package worker

import (
	"testing"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
)

// BenchmarkAwait is what waiting on the ranks of a drained session costs: it is
// in every submission and wait that is timed.
func BenchmarkAwait(b *testing.B) {
	s := open(b, tinySpec(), cpu.Options{}, Options{})
	x := executor(b, s, key("graph/event/device"))
	must(b, x.Begin(), x.Submit(1), x.Wait())
	b.ReportAllocs()
	for b.Loop() {
		must(b, x.Wait())
	}
}
