// Package recordtest proves what becomes of a record between runs: after a run that did nothing,
// and under the eyes and hands of an operator. It has tests only.
package recordtest
