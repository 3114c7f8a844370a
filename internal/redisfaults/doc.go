// Package redisfaults proves what a guard and its RedisStore do when servers and networks
// fail for real: servers that die, restart, fill up, evict, refuse or are emptied, masters
// that are cut off or fail over, messages that are lost, pools that run dry, and accounts
// with no more rights than the documentation grants. It also counts what the store costs
// the network. The tests run with REDIS_REQUIRED=1 and need redis-server; none of them uses a fake
// clock. Those that wait the longest need REDIS_EXHAUSTIVE=1, too, as in continuous integration.
package redisfaults
