// Package consumers shows how consumers of several kinds of queues handle each message once. Each file
// is a few lines to copy: how a message is named, and what the three answers of package queue are
// called there.
package consumers
