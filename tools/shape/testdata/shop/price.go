package shop

// Price is the [Price] of something.
type Price int

// String is about an [Order].
func (p Price) String() string { return Order{}.ID }
