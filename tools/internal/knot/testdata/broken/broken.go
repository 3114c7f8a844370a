// Package broken does not compile.
package broken

var number int = "text"
