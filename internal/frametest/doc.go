// Package frametest tests the middleware of a framework. It sends the same requests to a bare
// server of the framework, to a protected one, and to the protected one again, and compares the
// three answers. Where the framework's types make a difference, the test of the framework names
// it, and fails when the difference is gone.
//
// A framework has a function that starts a server with the routes of routes of app.go. Each handler asks
// [App.Begin] what it is to answer, and answers that in the framework's own way.
//
// Of a framework whose handlers return errors, an [Adapter] tests what middleware and handlers see of
// the guard between them.
package frametest
