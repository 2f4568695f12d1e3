// Package results is the record: what a run found, as data.
//
// It stands on the ground floor and at the end of the flow: the harness fills
// a [Record], [Write] stores it, and everything that shows or compares figures
// starts from [ReadFile]. Nothing downstream asks the run again.
//
// The package keeps one rule: fields are only added. A reader takes an absent
// field for its default and carries fields it does not know from input to
// output, so an old program can pass on a newer record unharmed; only another
// major version is refused. Values are in base units (nanoseconds, bytes);
// scaling them is the renderer's work.
package results
