package shop

import "fmt"

// Order is an [*Order], and costs [Price].
type Order struct {
	// ID names an [Order].
	ID    string
	price Price
}

// Pay pays.
//
//   - The store keeps it; see [Price.String].
func (o Order) Pay() string {
	all.Put(o.ID, o.price.String())
	return fmt.Sprint(o)
}
