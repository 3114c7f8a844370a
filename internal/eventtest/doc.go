// Package eventtest proves what a guard reports: its events, the traces and notes that lead to
// a run, and how busy it is. It has tests only.
package eventtest
