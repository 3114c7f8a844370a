// Package soak tests the library in real use: API processes with real connections to a real
// Redis are killed, stopped and terminated, while the network between them loses messages.
//
// The processes write their effects into a ledger in the process of the test, so an effect
// counts however its process ends.
//
// TestSoak has a second world, with a Redis of its own, for what cannot be judged by effects
// alone: records that are thrown away while a bank with a unique key remembers, versions of the
// service that take each other's place, a gateway with a guard, an operator, answers that Redis or
// the network does not carry, holds that outlast the TTL, and pauses, outages and broken connections
// that are longer than a lease.
//
// The tests need REDIS_REQUIRED=1, redis-server and a Unix system. TestSoak lasts thirty seconds with
// REDIS_EXHAUSTIVE=1, or as long as SOAK says, which is ten minutes with make soak. Otherwise it is
// skipped. SEED repeats its plan.
package soak
