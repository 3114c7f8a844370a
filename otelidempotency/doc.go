// Package otelidempotency tells OpenTelemetry what the guards and clients of package
// idempotency do: as metrics, as attributes and links of the spans that are there, and with the
// trace in the log.
//
// Three functions connect it:
//
//   - [Options] returns the options of a guard. They count its requests and incidents, describe
//     each request on its span, and link each replay to the run that made the answer.
//   - [ObserveGuard] reports what cannot be counted by events: held keys, runs in flight,
//     recordings that wait for the store.
//   - [ObserveClient] returns the option of a client.Transport.
//
// # Metrics
//
// The names begin with "idempotency.", because the semantic conventions have none for this. An
// exporter for Prometheus writes idempotency.requests as idempotency_requests_total. Attributes
// have the names of the semantic conventions where there is one (http.route,
// http.request.method), and otherwise begin with "idempotency." too.
//
// No metric has a key or a host in its attributes, and none has a scope unless [WithScopes] maps
// scopes to a few names. Methods are those of HTTP or "_OTHER". Routes are the labels of
// idempotency.WithRoute, or patterns of the router. From the two-thousandth combination on, an
// unknown route is "_OTHER".
//
// Each counter of incidents is there from the start, with the value zero: an alert on an
// increase does not see a counter that begins with its first incident.
//
// # Rules, dashboard, runbook
//
// The directory prometheus holds alerting rules with their tests, and the directory grafana a
// dashboard. docs/reference/runbook.md of the repository says for each alert what to do.
package otelidempotency
