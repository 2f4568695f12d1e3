package history

import "math"

// Sentinel is a night's test of the guard itself, on one small cell: nothing
// changed, and a slowdown that was put in.
type Sentinel struct {
	Row string `json:"row"` // its name; the one that is slowed
	// Noise is the relative standard deviation of a run's median with nothing
	// changed; Factor by how much the row was slowed, as a share of it, in one
	// SubGraph by Ns of host time.
	Noise    float64 `json:"noise"`
	Factor   float64 `json:"factor"`
	SubGraph string  `json:"sub_graph"`
	Ns       int64   `json:"ns"`
	Null     Trial   `json:"null"`
	Injected Trial   `json:"injected"`
}

// Trial is whether a comparison found something slower, at first and after the
// confirmation. Of the null trial any row counts, of the injected one the row
// that was slowed.
type Trial struct {
	First   bool   `json:"first"`
	Final   bool   `json:"final"`
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
}

// Rate is how many of N trials, with Wilson's interval for 95 %.
type Rate struct {
	Hits int     `json:"hits"`
	N    int     `json:"n"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// NewRate makes the score interval (Wilson 1927), which holds near 0 and 1
// too. Of no trials it is 0 to 1.
func NewRate(hits, n int) Rate {
	r := Rate{Hits: hits, N: n, High: 1}
	if n == 0 {
		return r
	}
	const z = 1.959963984540054
	p, m := float64(hits)/float64(n), float64(n)
	center := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	if hits > 0 {
		r.Low = max(0, center-half)
	}
	if hits < n {
		r.High = min(1, center+half)
	}
	return r
}

// SentinelNights is over how many nights the guard's rates roll.
const SentinelNights = 365

// Rates are the guard's error rates as its sentinel found them.
type Rates struct {
	// FalseFirst and FalseFinal are nights without a change that were called
	// slower, before and after the confirmation; CaughtFirst and CaughtFinal
	// nights whose slowdown was found.
	FalseFirst  Rate `json:"false_first"`
	FalseFinal  Rate `json:"false_final"`
	CaughtFirst Rate `json:"caught_first"`
	CaughtFinal Rate `json:"caught_final"`
}

func ratesOf(list []Sentinel) Rates {
	count := func(hit func(Sentinel) bool) Rate {
		hits := 0
		for _, s := range list {
			if hit(s) {
				hits++
			}
		}
		return NewRate(hits, len(list))
	}
	return Rates{
		FalseFirst:  count(func(s Sentinel) bool { return s.Null.First }),
		FalseFinal:  count(func(s Sentinel) bool { return s.Null.Final }),
		CaughtFirst: count(func(s Sentinel) bool { return s.Injected.First }),
		CaughtFinal: count(func(s Sentinel) bool { return s.Injected.Final }),
	}
}
