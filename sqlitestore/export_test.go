package sqlitestore

// UseDriver makes the stores of this process use the driver of that name.
func UseDriver(name string) { driverName = name }
