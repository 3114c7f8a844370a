package client

// Remembered returns how many routes and budgets a transport remembers.
func Remembered(t *Transport) (routes, budgets int) {
	return len(t.routes.known), len(t.budgets.known)
}
