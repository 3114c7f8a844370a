// Package security proves that callers cannot harm each other or learn each other's data. Its
// tests are about tenants that share a guard, floods that fill the waiting room, callers that
// may not see an answer, secrets in logs, events and refusals, and memory that is reused.
package security
