package inspect

import (
	"net/http"
	"time"
)

// This file is what the console answers to programs, beside records, stories, decisions, words and failures.

// ConsoleHeader says in each answer of the console, also in refusals, in which form programs send and get what: in
// ConsoleForm. Another form is one in which something that an earlier program sends means something else. Objects, fields
// and addresses that are only added leave it as it is.
const (
	ConsoleHeader = "Idempotency-Console"
	ConsoleForm   = "1"
)

// MostForm is how large a form of the console may be, with the answer that it may bring, in bytes. EraseTime is for how long one
// erases.
const (
	MostForm  = 4 << 20
	EraseTime = time.Minute
)

// A Now is what waits for a decision, and what hangs.
type Now struct {
	Type    string   `json:"type"`
	Says    string   `json:"says" jsonschema:"what waits and how the store does, in sentences"`
	Health  string   `json:"health" jsonschema:"well, unwell or unknown: what the store says of itself"`
	Held    int      `json:"held" jsonschema:"how many are held, or as many as could be counted in a second"`
	More    bool     `json:"more" jsonschema:"there may be more held than that"`
	Groups  []Alike  `json:"groups" jsonschema:"those of the records of the page"`
	Records []Record `json:"records" jsonschema:"a page of those that are held, oldest first"`
	Running []Record `json:"running" jsonschema:"the oldest runs in flight; only on the first page"`
	Next    string   `json:"next,omitempty" jsonschema:"cursor of the next page"`
}

// An Alike is a group of held records that one cause may have: those of one route that were held in one minute.
type Alike struct {
	Route  string `json:"route"`
	Minute string `json:"minute" jsonschema:"with route, what names the group"`
	Keys   int    `json:"keys" jsonschema:"how many are held, or as many as were counted"`
}

// Runs are a page of the runs in flight on routes that hold, of all processes.
type Runs struct {
	Type    string   `json:"type"`
	Records []Record `json:"records" jsonschema:"oldest first; none, of a page in which nothing fits"`
	Next    string   `json:"next,omitempty" jsonschema:"cursor of the next page"`
}

// A Found is a page of records that were found without their key.
type Found struct {
	Type    string   `json:"type"`
	By      string   `json:"by" jsonschema:"reference, tenant, trace, operation, or id for either of the last two; any if none of them finds what was typed"`
	Says    string   `json:"says" jsonschema:"how many, or why nothing may be found, in sentences"`
	Records []Record `json:"records"`
	Looked  int      `json:"looked,omitempty" jsonschema:"of a trace or an operation ID: at how many records of this page of the index"`
	Next    string   `json:"next,omitempty" jsonschema:"cursor of the next page"`
}

// A Group is several held records, and what each decision about them would do.
type Group struct {
	Type string `json:"type"`
	Alike
	Seen    string   `json:"seen" jsonschema:"what a decision takes as seen: how many they are, and which"`
	Records []Record `json:"records" jsonschema:"the oldest, 100 at most"`
	Options []Option `json:"decisions" jsonschema:"what each decision would do to these"`
}

// An Option is a decision that can be made about a group.
type Option struct {
	Decision string `json:"decision" jsonschema:"final, not-executed or resume"`
	Allowed  bool   `json:"allowed" jsonschema:"of one of them at least"`
	Says     string `json:"says" jsonschema:"what it does, or why it is refused; a line for each kind of record"`
}

// A Decided is what a decision about a group has done.
type Decided struct {
	Type     string     `json:"type"`
	Decision string     `json:"decision" jsonschema:"final, not-executed or resume"`
	Settled  int        `json:"settled" jsonschema:"how many were decided"`
	Left     int        `json:"left" jsonschema:"how many were left as they are"`
	Rest     int        `json:"rest" jsonschema:"how many were not come to: send the form again with this count, seen and after"`
	Stopped  string     `json:"stopped,omitempty" jsonschema:"why there is a rest"`
	Seen     string     `json:"seen,omitempty" jsonschema:"what was seen of the rest"`
	After    string     `json:"after,omitempty" jsonschema:"where the rest begins"`
	Actor    string     `json:"actor"`
	Reason   string     `json:"reason"`
	Results  []Decision `json:"results" jsonschema:"what became of the first 100 that were decided, and of the first 1,000 that were left, which are not allowed"`
}

// A ShownAnswer is a recorded answer.
type ShownAnswer struct {
	Type   string      `json:"type"`
	Record string      `json:"record"`
	Status int         `json:"status,omitempty" jsonschema:"absent of the result of a function"`
	Kind   string      `json:"kind"`
	Header http.Header `json:"header"`
	Body   string      `json:"body,omitempty" jsonschema:"its first 64 KiB, if it is text"`
	Bytes  int         `json:"bytes" jsonschema:"those of the whole body"`
	Note   string      `json:"note,omitempty" jsonschema:"what is not shown, and why"`
}

// A Store is what is known of the store, and what this process is busy with.
type Store struct {
	Type     string            `json:"type"`
	Store    string            `json:"store" jsonschema:"its type"`
	Says     string            `json:"says"`
	Health   string            `json:"health" jsonschema:"well, unwell or unknown: what the store says of itself"`
	Answered float64           `json:"answered_ms" jsonschema:"how long it took to list what is held"`
	Call     float64           `json:"call_ms" jsonschema:"how long it took to ask for a record that is not there"`
	Timeout  float64           `json:"timeout_ms,omitempty" jsonschema:"how long the guard waits for such a call; absent if calls return at once"`
	Check    string            `json:"check,omitempty" jsonschema:"what the store finds wrong with itself, or why it does not say"`
	Records  *int              `json:"records,omitempty" jsonschema:"how many it has, if it knows"`
	Birth    Birth             `json:"birth"`
	Held     int               `json:"held" jsonschema:"how many are held, among the first 1,000 of the index"`
	InFlight int               `json:"in_flight" jsonschema:"how many runs of all processes are in flight on routes that hold, among the same"`
	More     bool              `json:"more" jsonschema:"the index has more than that"`
	Counted  string            `json:"counted" jsonschema:"when they were counted"`
	Usage    *Usage            `json:"usage,omitempty" jsonschema:"how full the store is; absent if it cannot be asked"`
	Forms    []Form            `json:"forms" jsonschema:"the stored forms of this program"`
	Stats    Process           `json:"process"`
	Versions map[string]string `json:"versions" jsonschema:"of Go and of the modules of this library"`
}

// A Process is what a guard is busy with in one process.
type Process struct {
	Running      int   `json:"running"`
	Waiting      int   `json:"waiting"`
	Pending      int   `json:"pending" jsonschema:"runs that have ended and are not recorded yet"`
	PendingBytes int64 `json:"pending_bytes"`
	GivingBack   int   `json:"giving_back" jsonschema:"claims whose reply never came"`
	Abandoned    int   `json:"abandoned" jsonschema:"calls that have not returned"`
	OldestRun    int64 `json:"oldest_run_seconds,omitempty" jsonschema:"age of the oldest of the running"`
}
