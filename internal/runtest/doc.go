// Package runtest proves what a run promises from its claim to its settlement: its lease and its
// context, who waits for it, who judges its outcome, and the end of the process. It has tests
// only.
package runtest
