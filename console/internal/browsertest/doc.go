// Package browsertest walks through the console with a real browser, without JavaScript. Its tests are skipped where
// Chromium is not installed.
package browsertest
