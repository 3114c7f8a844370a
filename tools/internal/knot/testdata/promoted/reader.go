package promoted

type lot struct{ first *car }

func park() int {
	start := func(l lot) int {
		l.first.start()
		return l.first.power
	}
	return start(lot{})
}
