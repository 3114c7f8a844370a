// Package storefaults proves how runs, renewals and steps behave while their store fails, in fake
// time: calls that are refused, hang, come late or never, replies that are lost, and stores that
// come back. [example.com/idempotency/internal/simulation] combines such faults.
package storefaults
