// Package bench measures the cost of protection. It compares the library with the least that any
// request needs: the bare handler, a SHA-256 of the body, the round trips of the network. It also
// compares it with another middleware. One run measures all of them in turn and shows ratios,
// because times of different runs and machines do not compare.
//
// It is a module of its own, so that nobody inherits its requirements. Run it in its directory:
//
//	go test -v -run TestTable -rounds 9 -share 300ms
package bench
