package engine

import "time"

// margin is how long after sending a claim or a renewal the lease is surely ours: a
// tenth is left for clocks that run at different rates and for the way to the store.
func (l *Lease) margin() time.Duration { return l.claim.Lease - l.claim.Lease/10 }

// timeout bounds a single store call. It is at most a third of the lease, so that a call
// that hangs leaves time for another within the lease.
func (l *Lease) timeout() time.Duration {
	return min(storeTimeout, l.claim.Lease/renewalsPerLease)
}

// claimTimeout bounds a claim, which may have to read a recorded answer. It is at most a
// third of the lease too, because the lease runs meanwhile.
func (l *Lease) claimTimeout() time.Duration {
	return min(storeTimeout+sizeTime(l.rules.MaxAnswer), l.claim.Lease/renewalsPerLease)
}

// sendTimeout bounds a call that sends a value of n bytes. It may exceed the lease, which is
// renewed meanwhile.
func (l *Lease) sendTimeout(n int) time.Duration { return l.timeout() + sizeTime(int64(n)) }

// haste is timeout for the nth try of a call that somebody waits for, and has waited for so
// long. The first try leaves time for another, because a single broken connection may have
// swallowed it. A value of size bytes is given the time that it takes besides.
func (l *Lease) haste(n int, waited time.Duration, size int) time.Duration {
	timeout := min(l.timeout(), patience-waited)
	if n == 1 {
		timeout = min(timeout, patience/2)
	}
	return timeout + sizeTime(int64(size))
}
