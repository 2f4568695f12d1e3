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

// Confirm is the final verdict of each row of a first measurement, given what
// [Decide] found in a second one of its slower rows. A row stays slower only
// if both say so. One that the second finds the same or faster is the same:
// the first was a bad moment. One that it cannot tell, or lacks, is ambiguous.
// Rows that were not slower stay as they are, whatever the second says. The
// arguments are left as they are.
func Confirm(first, second []results.RowVerdict) []results.RowVerdict {
	again := map[results.RowKey]*results.RowVerdict{}
	for i := range second {
		v := second[i]
		again[v.Row] = &v
	}
	out := make([]results.RowVerdict, len(first))
	for i, v := range first {
		if v.Verdict == results.Slower {
			settle(&v, again[v.Row])
		}
		out[i] = v
	}
	return out
}

func settle(v, second *results.RowVerdict) {
	v.First, v.Confirmation = v.Verdict, second
	switch {
	case second == nil:
		v.Verdict, v.Reason = results.Ambiguous, results.NotConfirmed
		v.Why, v.Next = v.Why+"; it was not measured again", "measure both sides of it again"
	case second.Verdict == results.Slower:
		v.Reason, v.Next = results.Confirmed, "find the cause; what differs between the sides is listed as suspects"
		v.Why += fmt.Sprintf("; measured again, %s", second.Why)
	case second.Verdict == results.Ambiguous:
		v.Verdict, v.Reason, v.Next = results.Ambiguous, results.NotConfirmed, second.Next
		v.Why += fmt.Sprintf("; measured again, it cannot be told: %s", second.Why)
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
