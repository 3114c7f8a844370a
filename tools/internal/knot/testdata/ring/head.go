// Package ring has three files in a circle, and one that uses the circle.
package ring

func head(n int) int { return tail(n) + tailLength }
