package guard

import (
	"fmt"

	"github.com/tech-renaissance/trbench/results"
)

// ConfirmProcesses is how many processes a side a confirmation takes. With 8,
// as many as a night, 2 outliers among base's hide a slower head from the
// test: where 2 % of processes are outliers that loses 1 % of all regressions,
// however large (docs/guard-rates.md shows it). With 12 it takes 4.
const ConfirmProcesses = 12

// ToConfirm lists the rows that a first measurement found slower: those to
// measure again, base and head, in fresh processes, at a later time. The two
// sides' processes should alternate, so that what drifts drifts on both.
func ToConfirm(first []results.RowVerdict) []results.RowKey {
	var keys []results.RowKey
	for _, v := range first {
		if v.Verdict == results.Slower {
			keys = append(keys, v.Row)
		}
	}
	return keys
}

// Again is a second measurement, of the slower rows of a first one. Rows that
// were not slower may be among its rows, and count for nothing.
type Again struct {
	// Rows set head, measured again, against base: measured again beside it, or,
	// if Alone, as it was measured at first.
	Rows []Row
	// Base sets base, measured again, against base as it was measured at first.
	// Empty if Alone.
	Base []Row
	// Alone says that base was not measured again. No row stays slower by such a
	// measurement: what the night does to the machine is in both measurements of
	// head and in none of base.
	Alone bool
}

// Confirm is the final verdict of each row of a first measurement, given a
// second one of its slower rows, which are judged as one family and with the
// noise of the first. A row stays slower only if both say so, and both sides
// were measured again. One that the second finds the same or faster is the
// same: the first was a bad moment. But where base, too, is slower than at
// first, the row is ambiguous: what became slower is not the program, and may
// be gone tomorrow. One that the second cannot tell, or lacks, is ambiguous.
// Rows that were not slower stay as they are, whatever the second says. The
// arguments are left as they are.
func Confirm(first []results.RowVerdict, again Again, o Options) []results.RowVerdict {
	slower := map[results.RowKey]*float64{}
	for _, v := range first {
		if v.Verdict == results.Slower {
			slower[v.Row] = v.Noise
		}
	}
	judged := func(list []Row) map[results.RowKey]*results.RowVerdict {
		var of []Row
		for _, r := range list {
			if noise, ok := slower[r.Key]; ok {
				r.Noise = noise
				of = append(of, r)
			}
		}
		out := map[results.RowKey]*results.RowVerdict{}
		for _, v := range Decide(of, o) {
			out[v.Row] = &v
		}
		return out
	}
	heads, bases := judged(again.Rows), judged(again.Base)
	out := make([]results.RowVerdict, len(first))
	for i, v := range first {
		if v.Verdict == results.Slower {
			v.BaseAgain = bases[v.Row]
			settle(&v, heads[v.Row], again.Alone)
		}
		out[i] = v
	}
	return out
}

func settle(v, second *results.RowVerdict, alone bool) {
	v.First, v.Confirmation = v.Verdict, second
	switch {
	case second == nil:
		v.Verdict, v.Reason = results.Ambiguous, results.NotConfirmed
		v.Why, v.Next = v.Why+"; it was not measured again", "measure both sides of it again"
	case second.Verdict == results.Slower && alone:
		v.Verdict, v.Reason, v.Next = results.Ambiguous, results.BaseNotMeasured, "measure base again beside head, by base's program"
		v.Why += fmt.Sprintf("; measured again, %s; but base was not measured beside it, so that the machine may be the cause", second.Why)
	case second.Verdict == results.Slower:
		v.Reason, v.Next = results.Confirmed, "find the cause; what differs between the sides is listed as suspects"
		v.Why += fmt.Sprintf("; measured again, %s", second.Why)
	case second.Verdict == results.Ambiguous:
		v.Verdict, v.Reason, v.Next = results.Ambiguous, results.NotConfirmed, second.Next
		v.Why += fmt.Sprintf("; measured again, it cannot be told: %s", second.Why)
	case v.BaseAgain != nil && v.BaseAgain.Verdict == results.Slower:
		v.Verdict, v.Reason = results.Ambiguous, results.BaseSlowerToo
		v.Next = "find what became slower beside the program: a driver or a library among the suspects, or the machine; if it is to stay, measure a new base"
		v.Why += fmt.Sprintf("; measured again, %s; but base, measured beside it, is slower than at first, too: %s", second.Why, v.BaseAgain.Why)
	default:
		v.Verdict, v.Reason, v.Next = results.Same, results.NotRepeated, ""
		v.Why += fmt.Sprintf("; measured again, it did not repeat: %s", second.Why)
	}
}

// Overall is the verdict of all rows together: slower if one is, else
// ambiguous if one is or something is missing, else faster if one is, else the
// same. Of no rows at all nothing can be told.
func Overall(rows []results.RowVerdict, partial bool) string {
	have := map[string]bool{}
	for _, v := range rows {
		have[v.Verdict] = true
	}
	switch {
	case have[results.Slower]:
		return results.Slower
	case have[results.Ambiguous], partial, len(rows) == 0:
		return results.Ambiguous
	case have[results.Faster]:
		return results.Faster
	}
	return results.Same
}
