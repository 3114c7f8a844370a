package guardtest

import "sync"

// Together calls a function n times at once, with the numbers from 0, and returns when all have returned.
func Together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
