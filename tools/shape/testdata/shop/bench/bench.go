// Package bench is in a module that is not released.
package bench

// Rounds is how many.
const Rounds = 3
