// Package simulation proves the guarantee in simulated worlds, in fake time:
//
//   - a fault matrix, in which each of the first calls of a store fails in each way, alone and in
//     pairs, and in the company of an operator, another version or another guard, or with the
//     record lost
//   - random worlds of processes that crash and pause over a store that loses messages, judged by
//     a ledger of the store's records, by a bank that has all effects and by the client half of the
//     library. Each is of a kind: records vanish, an operator decides, a deployment is under way,
//     guards stand before and within guards, the store is slow, connections break, runs join
//     transactions
//   - random programs of steps
//
// A random world that fails prints its seed. SEED=n repeats it.
package simulation
