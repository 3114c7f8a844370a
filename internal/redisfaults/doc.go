// Package redisfaults proves what a guard and its RedisStore do when servers and networks
// fail for real: servers that die, restart, fill up, evict, refuse or are emptied, masters
// that are cut off or fail over, messages that are lost, pools that run dry, and accounts
// with no more rights than the documentation grants. It also counts what the store costs
// the network. The tests need redis-server; none of them uses a fake clock. Those that wait the
// longest run with REDIS_EXHAUSTIVE=1 only, as in continuous integration.
package redisfaults
