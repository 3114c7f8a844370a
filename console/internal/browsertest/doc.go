// Package browsertest walks through the console with a real browser, without JavaScript. Tests that need
// Chromium are skipped where it is not installed.
package browsertest
