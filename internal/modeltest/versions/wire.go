// Package versions runs processes of two versions of the library beside each other, on one Redis server, one
// PostgreSQL database and one SQLite file. Each must go on with what the other has stored as if it had stored
// it itself, or say 503 and leave the record as it is.
//
// Folder process is the process. scripts/check-versions.sh builds it against an earlier commit, so it and this
// file use only what both versions export. The tests are the clients of both, and run with the tree's version
// on both sides where VERSIONS_EARLIER does not name the program of the earlier one.
package versions

import (
	"fmt"
	"time"
)

// The guards of a process have names of the form store/seal/policy.
var (
	Stores   = []string{"redis", "postgres", "sqlite"}
	Seals    = []string{"plain", "sealed"}
	Policies = []string{"rerun", "hold", "rebind", "brief-rerun", "brief-hold", "found"}
)

// BriefLease is the lease of the policies whose name says so.
const BriefLease = time.Second

// A Call tells a process what to do.
type Call struct {
	ID    int
	Op    string // the name of an operation of the process
	Guard string
	Key   string
	Body  string // of the request, or the payload of a Do
	Do    string // what the handler or the function does
	Final bool   // of a resolution
	Label string // of what is listed
	Next  string // the cursor of the page before
	Path  string // of a journal
}

// A Reply is what came of it.
type Reply struct {
	ID    int
	Error string
	// Elsewhere says that the error wraps ErrUnreadableHere.
	Elsewhere bool

	Status int
	Header map[string][]string
	Body   string
	Ran    bool // the handler or the function
	Steps  int  // functions of steps that have run
	Result string

	Look  Look
	Names []string
	Next  string
}

// A Look is what an operator sees of a record.
type Look struct {
	Key, State, Route string
	Attempt, Status   int
	Size              int64
	Steps             []string
	Runs              int
	Started           time.Time
	// Named is the key that was found by the name of the record.
	Named string
	// Decisions are those about the record. With State, Route and Attempt they are what is left of one that was forgotten.
	Decisions []string
}

// String shows what matters of a reply.
func (r Reply) String() string {
	return fmt.Sprintf("%d %v %q ran %t steps %d result %q error %q", r.Status, r.Header, r.Body, r.Ran, r.Steps, r.Result, r.Error)
}
