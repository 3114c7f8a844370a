// Package around would have a circle if an interface did not turn an arrow around.
package around

type stopper interface{ stop() }

func call(s stopper) { s.stop() }
