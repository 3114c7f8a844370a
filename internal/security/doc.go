// Package security proves what callers cannot do to each other and cannot learn: tenants
// that share a guard, floods that fill the waiting room, answers for those who may not see
// them, secrets in logs, events and refusals, and memory that is used again.
package security
