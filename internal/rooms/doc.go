// Package rooms holds one test: that every package imports only packages on
// lower floors of the table in docs/design.md.
//
// It stands outside the flow. The package keeps one rule: the table is the
// truth; a new package gets a line there first.
package rooms
