package ring

type body[T any] struct{ size int }

func (b body[T]) half() int {
	if b.size > 1 {
		return head(b.size / 2)
	}
	return 0
}
