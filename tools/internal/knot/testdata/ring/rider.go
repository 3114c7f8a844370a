package ring

// Ride uses the circle.
func Ride() int { return head(8) }
