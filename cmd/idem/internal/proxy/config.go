package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// A Config is what a proxy is told, by a file and by flags. [Default] has the values of what is not said.
type Config struct {
	To             string        `json:"to,omitzero"                jsonschema:"the service: http://, https:// or h2c://host:port, with a path in front of all others if it has one" yaml:"to"`
	Listen         string        `json:"listen,omitzero"            jsonschema:"where clients come; 127.0.0.1:8080 by default"                                                   yaml:"listen"`
	Admin          string        `json:"admin,omitzero"             jsonschema:"where health, metrics and the console are; 127.0.0.1:8081 by default, none if it is off"         yaml:"admin"`
	Store          Store         `json:"store,omitzero"             jsonschema:"where records are; the memory of this process if none is named"                                  yaml:"store"`
	Scope          string        `json:"scope,omitzero"             jsonschema:"whose a key is: authorization (a digest of that field, the default), header:NAME, jwt:CLAIM, or shared" yaml:"scope"`
	JWT            JWT           `json:"jwt,omitzero"               jsonschema:"how tokens are verified for the scope jwt:CLAIM"                                                 yaml:"jwt"`
	Findable       bool          `json:"findable,omitzero"          jsonschema:"all records of a scope can be found, and erased, together: idem find --tenant, idem erase"      yaml:"findable"`
	DerivedKey     bool          `json:"derived_key,omitzero"       jsonschema:"send the service Idempotency-Derived-Key, too: the same for each attempt of one request, and another for each caller" yaml:"derived_key"`
	Fresh          bool          `json:"fresh_connections,omitzero" jsonschema:"send each request on a connection of its own, because the service may send more than it has declared" yaml:"fresh_connections"`
	TrustForwarded bool          `json:"trust_forwarded,omitzero"   jsonschema:"keep X-Forwarded-For as it comes and add to it, because a proxy in front has set it"             yaml:"trust_forwarded"`
	Grace          time.Duration `json:"grace,omitzero"             jsonschema:"how long a shutdown waits for what is under way; 25s by default"                                 yaml:"grace"`
	Rules          `yaml:",inline"`
	Routes         []Route `json:"routes,omitzero" jsonschema:"rules for some requests; the rules beside them are for all others" yaml:"routes"`
}

// A Store says where records are: at most one of the three.
type Store struct {
	Redis    string `json:"redis,omitzero"    jsonschema:"URL of a Redis or Valkey (IDEM_REDIS)"             yaml:"redis"`
	Prefix   string `json:"prefix,omitzero"   jsonschema:"what stands before the names of records in Redis; idem: by default" yaml:"prefix"`
	Postgres string `json:"postgres,omitzero" jsonschema:"connection string of a PostgreSQL (IDEM_POSTGRES)" yaml:"postgres"`
	Table    string `json:"table,omitzero"    jsonschema:"the table of records in PostgreSQL; idempotency_records by default" yaml:"table"`
	SQLite   string `json:"sqlite,omitzero"   jsonschema:"file of SQLite, which is made (IDEM_SQLITE)"       yaml:"sqlite"`
}

// A JWT says how a token is verified. Without a file of keys there is no scope of the kind jwt:CLAIM.
type JWT struct {
	JWKS     string `json:"jwks,omitzero"     jsonschema:"file with the public keys of the issuer, as a JSON Web Key Set" yaml:"jwks"`
	Issuer   string `json:"issuer,omitzero"   jsonschema:"the value that iss must have; any if it is not set"  yaml:"issuer"`
	Audience string `json:"audience,omitzero" jsonschema:"a value that aud must have; any if it is not set"    yaml:"audience"`
}

// Rules are those of requests. What is not set is inherited from the rules for all, and there from the library.
type Rules struct {
	Methods      []string      `json:"methods,omitzero"       jsonschema:"the protected methods: POST and PATCH by default; in a route whose pattern has a method, that one" yaml:"methods"`
	Required     *bool         `json:"required,omitzero"      jsonschema:"refuse a request without a key with 400; not by default"                yaml:"required"`
	TTL          time.Duration `json:"ttl,omitzero"           jsonschema:"how long an answer is replayed; 24h by default"                         yaml:"ttl"`
	Recovery     string        `json:"recovery,omitzero"      jsonschema:"what follows an unknown outcome: rerun (the default), hold, or hold-after-N attempts" yaml:"recovery"`
	Fingerprint  string        `json:"fingerprint,omitzero"   jsonschema:"what of the body counts: raw (each byte, the default), json (spelling does not count) or fields:a,b" yaml:"fingerprint"`
	Reference    string        `json:"reference,omitzero"     jsonschema:"what a record is found by besides its key: header:NAME, or field:NAME of a JSON body; nothing by default" yaml:"reference"`
	Lease        time.Duration `json:"lease,omitzero"         jsonschema:"how long the key of a proxy that has died stays taken; 30s by default"  yaml:"lease"`
	Wait         time.Duration `json:"wait,omitzero"          jsonschema:"how long a duplicate waits for the answer of the first; not at all by default" yaml:"wait"`
	Timeout      time.Duration `json:"timeout,omitzero"       jsonschema:"how long the service may be silent in a protected request; 60s by default" yaml:"timeout"`
	RequestBody  int64         `json:"request_body,omitzero"  jsonschema:"the largest body of a protected request, in bytes; 1048576 by default"  yaml:"request_body"`
	ResponseBody int64         `json:"response_body,omitzero" jsonschema:"the largest answer that is kept, in bytes; 1048576 by default"          yaml:"response_body"`
}

// A Route has its own rules for the requests that its pattern matches, as the router of net/http has it.
type Route struct {
	Match   string `json:"match"            jsonschema:"a pattern of net/http, such as POST /charges or /orders/{id}; the most specific one counts" yaml:"match"`
	Protect *bool  `json:"protect,omitzero" jsonschema:"false passes these requests on unprotected"                                               yaml:"protect"`
	Rules   `yaml:",inline"`
}

// Default returns the settings of a proxy that is told nothing but its service.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8080", Admin: "127.0.0.1:8081", Scope: "authorization", Grace: 25 * time.Second,
		Store: Store{Prefix: "idem:", Table: "idempotency_records"},
		Rules: Rules{
			TTL: 24 * time.Hour, Lease: 30 * time.Second, Timeout: time.Minute, Recovery: "rerun", Fingerprint: "raw",
			RequestBody: 1 << 20, ResponseBody: 1 << 20,
		},
	}
}

// Flags adds a flag for each setting that needs no file.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.To, "to", c.To, "the service: http://, https:// or h2c://host:port")
	f.StringVar(&c.Listen, "listen", c.Listen, "where clients come")
	f.StringVar(&c.Admin, "admin", c.Admin, "where health, metrics and the console are, or off")
	f.StringVar(&c.Scope, "scope", c.Scope, "whose a key is: authorization, header:NAME, jwt:CLAIM or shared")
	f.StringVar(&c.JWT.JWKS, "jwks", c.JWT.JWKS, "file with the keys that verify tokens, for jwt:CLAIM")
	f.BoolVar(&c.DerivedKey, "derived-key", c.DerivedKey, "send the service Idempotency-Derived-Key, too")
	f.StringVar(&c.Recovery, "recovery", c.Recovery, "what follows an unknown outcome: rerun, hold or hold-after-N")
	f.StringVar(&c.Fingerprint, "fingerprint", c.Fingerprint, "what of the body counts: raw, json or fields:a,b")
	f.StringVar(&c.Reference, "reference", c.Reference, "what a record is found by besides its key: header:NAME, or field:NAME of a JSON body")
	f.BoolVar(&c.Findable, "findable", c.Findable, "all records of a scope can be found and erased together")
	f.DurationVar(&c.TTL, "ttl", c.TTL, "how long an answer is replayed")
	f.DurationVar(&c.Lease, "lease", c.Lease, "how long the key of a proxy that has died stays taken")
	f.DurationVar(&c.Timeout, "timeout", c.Timeout, "how long the service may be silent in a protected request")
	f.BoolFunc("required", "refuse a protected request without a key", func(s string) error {
		on := s == "true"
		c.Required = &on
		return nil
	})
}

// Read adds what a file says, strictly: an unknown or repeated word is an error.
func (c *Config) Read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %s", file, plainer(err))
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: there is more than one document", file)
	}
	if err := checkZeros(text); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// checkZeros finds zeros in routes, which would be the value of the rules for all without saying so.
func checkZeros(text []byte) error {
	var file struct {
		Routes []map[string]yaml.Node `yaml:"routes"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return err
	}
	var errs []error
	for _, r := range file.Routes {
		for _, name := range []string{"ttl", "lease", "wait", "timeout", "request_body", "response_body", "recovery", "fingerprint", "reference"} {
			node := r[name]
			if d, err := time.ParseDuration(cmp.Or(node.Value, "0")); node.Line > 0 && err == nil && d == 0 {
				errs = append(errs, fmt.Errorf("line %d: %s: nothing is not a value; without the word, the rules for all count", node.Line, name))
			}
		}
	}
	return errors.Join(errs...)
}

var goType = regexp.MustCompile(` (not found|already set) in type \S+`)

// plainer returns the text of an error of package yaml without names of Go.
func plainer(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "unmarshal errors:")), " ")
	return goType.ReplaceAllString(text, " $1")
}

// target returns the service as a URL of http or https, and whether it speaks HTTP/2 without TLS.
func (c *Config) target() (to *url.URL, h2c bool, err error) {
	to, err = url.Parse(c.To)
	switch {
	case c.To == "":
		return nil, false, errors.New("to: name the service, such as http://127.0.0.1:3000")
	case err != nil || to.Hostname() == "" || !isPort(cmp.Or(to.Port(), "80")) || to.RawQuery != "" || to.Fragment != "" || to.User != nil:
		return nil, false, errors.New("to: it must be a scheme, a host and perhaps a path") // without the text, which may have a password
	}
	switch to.Scheme {
	case "http", "https":
		return to, false, nil
	case "h2c":
		to.Scheme = "http"
		return to, true, nil
	default:
		return nil, false, fmt.Errorf("to: the scheme is %q, and must be http, https or h2c", to.Scheme)
	}
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
