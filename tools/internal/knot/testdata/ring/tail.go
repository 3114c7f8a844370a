package ring

const tailLength = 3

func tail(n int) int {
	local := body[int]{size: n}
	return local.half()
}
