// Package microbench holds the benchmarks of single parts: a request, the stores' calls,
// requests that wait, load from several cores. make microbench runs them. Its tests hold
// what is exact, the allocations, against what the documentation promises.
//
// The tables in docs/performance.md, which compare the library with others, come from
// [example.com/idempotency/internal/bench], a module of its own because of what it compares
// with. What needs nothing but the library is here, where go test ./... reaches it.
package microbench
