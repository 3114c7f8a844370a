// Package rpctest tests the modules for RPC frameworks: the same calls are sent to a bare server, to
// a protected one, and to that one again, over Connect, gRPC and gRPC-Web.
//
//   - bank_test.go: the service, and what its handler does in each case
//   - cases_test.go: the cases, and the comparison of the three answers
//   - refusals_test.go: what a guard answers itself, and what it does while a run goes on
//   - connect_test.go: servers and clients of Connect
//   - grpc_test.go: servers and clients of grpc-go, and of both mixed
//   - gateway_test.go: what stands behind a grpc-gateway, over the network and in one process
//   - http_test.go: a guard around a handler, which refuses calls
package rpctest
