package race

import "testing"

// SkipSequence skips a test that makes thousands of calls, one after the other, if the race detector is on. Without
// it, the test runs with the README's command.
func SkipSequence(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("thousands of calls, one after the other: there is nothing to detect")
	}
}
