package worker

import (
	"testing"

	"github.com/tech-renaissance/trbench/internal/device/cpu"
)

// BenchmarkClocksAddUp prints how far the three clocks of a step are from a
// clock around its whole submission, to a drained device.
func BenchmarkClocksAddUp(b *testing.B) {
	for _, k := range []string{"eager/event/device", "eager/host/host", "graph/event/device", "step/inside/device"} {
		b.Run(k, func(b *testing.B) {
			s := open(b, tinySpec(), cpu.Options{}, Options{})
			x := executor(b, s, key(k))
			must(b, x.Begin())
			var sum, outer float64
			for b.Loop() {
				x.Clocks()
				must(b, x.Submit(1))
				c := x.Clocks()[0]
				must(b, x.Wait())
				sum += float64(c.Submit + c.SyncWait + c.Host)
				outer += float64(c.Outer)
			}
			b.ReportMetric(100*(1-sum/outer), "%missing")
			b.ReportMetric(outer/float64(b.N), "outer-ns/step")
		})
	}
}
