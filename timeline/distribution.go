package timeline

import (
	"math/bits"
	"slices"
)

// Distribution describes lengths of time, or signed differences, in ns. Each
// quantile is one of the values: the smallest that at least the share has at or
// below it. All are 0 where Count is.
type Distribution struct {
	Count                                                        int
	SumNs                                                        int64
	MinNs, P1Ns, P10Ns, P25Ns, P50Ns, P75Ns, P90Ns, P99Ns, MaxNs int64
}

// Distribute sorts its values in place and describes them.
func Distribute(ns []int64) Distribution {
	if len(ns) == 0 {
		return Distribution{}
	}
	slices.Sort(ns)
	d := Distribution{Count: len(ns), MinNs: ns[0], MaxNs: ns[len(ns)-1]}
	for _, v := range ns {
		d.SumNs += v
	}
	at := func(percent int) int64 { return ns[(percent*len(ns)+99)/100-1] }
	d.P1Ns, d.P10Ns, d.P25Ns, d.P50Ns = at(1), at(10), at(25), at(50)
	d.P75Ns, d.P90Ns, d.P99Ns = at(75), at(90), at(99)
	return d
}

// Bucket counts values in [FromNs, ToNs).
type Bucket struct {
	FromNs, ToNs int64
	Count        int
	SumNs        int64
}

// LogHistogram sorts non-negative values into buckets of equal width within a
// power of two, four of them from 4 ns on, and one a nanosecond below. Buckets
// are in order from the smallest value's to the largest value's, empty ones
// between included; negative values are left out.
func LogHistogram(ns []int64) []Bucket {
	var counts [256]Bucket
	lo, hi := len(counts), -1
	for _, v := range ns {
		if v < 0 {
			continue
		}
		i := bucketOf(v)
		counts[i].Count++
		counts[i].SumNs += v
		lo, hi = min(lo, i), max(hi, i)
	}
	if hi < 0 {
		return nil
	}
	for i := lo; i <= hi; i++ {
		counts[i].FromNs, counts[i].ToNs = bucketFrom(i), bucketFrom(i+1)
	}
	return slices.Clone(counts[lo : hi+1])
}

func bucketOf(v int64) int {
	if v < 4 {
		return int(v)
	}
	power := bits.Len64(uint64(v)) - 1 // of two, 2 or more
	return 4*(power-1) + int(v>>(power-2))&3
}

func bucketFrom(i int) int64 {
	if i < 4 {
		return int64(i)
	}
	power := i/4 + 1
	if power >= 63 { // beyond int64
		return 1<<63 - 1
	}
	return (4 + int64(i%4)) << (power - 2)
}

// GapLengths are the lengths of the gaps in a window, unclipped gaps being all
// that a span has.
func GapLengths(gaps []Gap) []int64 {
	out := make([]int64, len(gaps))
	for i, g := range gaps {
		out[i] = g.Ns()
	}
	return out
}
