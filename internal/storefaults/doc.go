// Package storefaults proves what runs, renewals and steps do while their store fails, in
// fake time: calls that are refused, hang, come late or never, replies that are lost, and
// stores that come back. What a whole world of such faults does is for
// [example.com/idempotency/internal/simulation] to say.
package storefaults
