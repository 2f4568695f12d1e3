// Package guard decides whether figures became slower. It stands between
// records and whatever acts on them: commands, nightly runs, pages and the
// simulation that measures its error rates all call [Decide] and [Confirm].
// Its rule: no verdict without the numbers it rests on, and nothing is judged
// that the number of processes cannot carry.
package guard
