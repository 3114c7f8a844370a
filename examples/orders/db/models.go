package db

// An Order is a row of the table orders.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int64  `json:"quantity"`
}

// A Message is a row of the table outbox, without what only the queries need.
type Message struct {
	ID      string `json:"id"`
	Topic   string `json:"topic"`
	Payload string `json:"payload"`
}
