// Package bench measures what protection costs, against what nothing can do without: the
// bare handler, a SHA-256 over the body, the round trips of the network, and another
// middleware. All of it is measured in one run, in turn, and shown as ratios, because
// times of different runs and machines do not compare.
//
// It is a module of its own, so that nobody inherits what it requires. From its
// directory:
//
//	go test -v -run TestTable -rounds 9 -share 300ms
package bench
