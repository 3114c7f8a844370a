// Package microbench holds the benchmarks of single parts: a request, the calls of the stores,
// requests that wait, load from several cores. Run them with make microbench. Its tests compare
// the allocations, which are exact, with the promises of the documentation.
//
// The tables in docs/explanation/performance.md compare the library with others. They come from
// [example.com/idempotency/internal/bench], which is a module of its own because of its
// requirements. Benchmarks that need only the library are here, where go test ./... builds them.
package microbench
