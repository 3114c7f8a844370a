package knot

import (
	"cmp"
	"slices"
)

type arrow struct{ from, to int }

// Knots returns the sets of two files or more in which every file reaches every other one on
// arrows: the largest first, the files of each in order.
func (g *Graph) Knots() [][]int {
	all := make([]int, len(g.Files))
	for i := range all {
		all[i] = i
	}
	return g.knots(all, nil)
}

// knots returns the knots among some files, when some arrows are taken out. The algorithm is
// Tarjan's, for strongly connected components.
func (g *Graph) knots(files []int, without map[arrow]bool) [][]int {
	const notHere, unseen, done = 0, 1, 2 // higher values say when a file on the stack was seen
	seen := make([]int, len(g.Files))
	for _, file := range files {
		seen[file] = unseen
	}
	var found [][]int
	var stack []int
	clock := done
	var visit func(file int) int
	visit = func(file int) int {
		clock++
		seen[file] = clock
		began, height, earliest := clock, len(stack), clock
		stack = append(stack, file)
		for to := range g.uses[file] {
			switch {
			case seen[to] == notHere, seen[to] == done, without[arrow{file, to}]:
			case seen[to] == unseen:
				earliest = min(earliest, visit(to))
			default:
				earliest = min(earliest, seen[to])
			}
		}
		if earliest == began {
			knot := slices.Clone(stack[height:])
			stack = stack[:height]
			for _, member := range knot {
				seen[member] = done
			}
			if len(knot) > 1 {
				slices.Sort(knot)
				found = append(found, knot)
			}
		}
		return earliest
	}
	for _, file := range files {
		if seen[file] == unseen {
			visit(file)
		}
	}
	slices.SortFunc(found, func(a, b []int) int {
		return cmp.Or(len(b)-len(a), a[0]-b[0])
	})
	return found
}

// A Cut is an arrow, and what is left of a knot without it and without the cuts before it.
type Cut struct {
	From, To int
	Left     []int // sizes of knots
}

// Cuts returns arrows whose removal opens a knot: each time the arrow that helps most for each
// name that it rides on, until nothing is left or there are most of them.
func (g *Graph) Cuts(knot []int, most int) []Cut {
	var cuts []Cut
	without := map[arrow]bool{}
	for left := [][]int{knot}; len(left) > 0 && len(cuts) < most; {
		best, bestGain, rest := arrow{-1, -1}, -1.0, left
		for _, part := range left {
			for _, from := range part {
				for _, to := range g.Uses(from) {
					a := arrow{from, to}
					if without[a] || !slices.Contains(part, to) {
						continue
					}
					without[a] = true
					opened := g.knots(knot, without)
					delete(without, a)
					names := float64(len(g.uses[from][to]))
					gain := float64(weight(left)-weight(opened)) / names
					if gain == 0 {
						gain = -1 + 1/(1+names) // below any that helps; the fewer names the better
					}
					if gain > bestGain {
						best, bestGain, rest = a, gain, opened
					}
				}
			}
		}
		without[best] = true
		left = rest
		cut := Cut{From: best.from, To: best.to}
		for _, part := range left {
			cut.Left = append(cut.Left, len(part))
		}
		cuts = append(cuts, cut)
	}
	return cuts
}

// weight tells how bad knots are. One of ten files is worse than two of five.
func weight(knots [][]int) int {
	sum := 0
	for _, knot := range knots {
		sum += len(knot) * len(knot)
	}
	return sum
}

// A Middle is a file of a knot, and the size of the largest knot that is left without it.
type Middle struct{ File, Left int }

// Middles returns the files that hold a knot together, the strongest first: those without which
// more than they themselves leave it.
func (g *Graph) Middles(knot []int) []Middle {
	var found []Middle
	weights := map[int]int{}
	for i, file := range knot {
		m := Middle{File: file}
		left := g.knots(slices.Delete(slices.Clone(knot), i, i+1), nil)
		if len(left) > 0 {
			m.Left = len(left[0])
		}
		if m.Left < len(knot)-1 {
			weights[file] = weight(left)
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b Middle) int { return weights[a.File] - weights[b.File] })
	return found
}
