package promoted

type engine struct{ power int }

func (e *engine) start() { e.power++ }
