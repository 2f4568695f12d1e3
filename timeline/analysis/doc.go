// Package analysis answers the questions that people have about a step they
// recorded: what bounds it, and what would capturing it as a graph buy.
//
// It stands between a [timeline.Index] and whatever prints or compares. The rule
// it keeps: a verdict names the share that says so and the rule, and what a
// recording cannot carry is withheld with the reason.
package analysis
