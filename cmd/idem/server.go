package main

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"example.com/idempotency/cmd/idem/internal/remote"
)

// This file is a service as a desk: its console decides, with the sealers and the secrets that only the service has.

// ways are how the console of a service is reached.
type ways struct {
	header  []string
	caFile  string
	timeout time.Duration
}

func (w *ways) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&w.header, "server-header", nil, `a field for the service, "Authorization: Bearer TOKEN" (IDEM_SERVER_HEADER, one a line, stands in no list of processes)`)
	f.StringVar(&w.caFile, "ca-file", "", "certificates in PEM that a service is trusted by, in place of those of the system")
	f.DurationVar(&w.timeout, "server-timeout", 15*time.Second, "how long each answer of a service may take")
}

// ofStores are flags that say what a service knows by itself.
var ofStores = map[string]string{
	"ttl": "the service keeps an answer for the TTL of its route", "secret-file": "the service has the secret", "actor": "the service knows who you are",
	"tombstone": "the service has WithTombstones",
}

// service returns the console that is named.
func (t target) service(given *pflag.FlagSet, env func(string) string) (desk, error) {
	for name, why := range ofStores {
		if given.Changed(name) {
			return nil, usage("--%s is for a store, and not for --server: %s", name, why)
		}
	}
	header := t.ways.header
	if len(header) == 0 {
		header = strings.FieldsFunc(env("IDEM_SERVER_HEADER"), func(r rune) bool { return r == '\n' || r == '\r' })
	}
	c, err := remote.New(remote.Config{URL: t.server, Header: header, CAFile: t.ways.caFile, Timeout: t.ways.timeout})
	if err != nil {
		return nil, usage("--server: %w", err)
	}
	return c, nil
}
