// Package policytest proves that a guard does what its published policy says: each sentence,
// each refusal with its status, and each status of an answer is held against real requests. A
// sentence, a code or a field of the policy without a proof fails a test.
//
//   - rules_test.go, more_rules_test.go: the sentences
//   - refusals_test.go: the refusals
//   - answers_test.go: which answers count
//   - complete_test.go: nothing is published without a proof
package policytest
