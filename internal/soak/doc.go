// Package soak holds tests of the library as it is used: API processes with real
// connections to a real Redis, which are killed, stopped and terminated, while the
// network in between loses what it can.
//
// What the processes do to the world is written into a ledger outside of them, in the
// process of the test, so that an effect counts however its process ends.
//
// The tests need redis-server and a Unix system. TestSoak lasts five seconds, thirty where
// REDIS_REQUIRED=1 says that every test counts, or as long as SOAK says, ten minutes with
// make soak. SEED repeats its plan.
package soak
