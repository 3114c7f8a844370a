//go:build !unix

package redistest

import "os"

// Processes cannot be paused here; the test that tries says so.
var signalStop, signalContinue = os.Interrupt, os.Interrupt
