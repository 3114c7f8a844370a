// Command schema prints the SQL that makes the table of a store, or brings one to the version of this module:
// for goose, Atlas, or a DBA.
//
//	go run example.com/idempotency/stores/pgstore/cmd/schema -from 1 > migrations/0007_idempotency.sql
package main

import (
	"flag"
	"fmt"
	"os"

	"example.com/idempotency/stores/pgstore"
)

func main() {
	table := flag.String("table", "idempotency_records", "name of the table, with its schema if it has one")
	from := flag.Int("from", 0, "version that the table has; 0 for no table")
	flag.Parse()
	sql, err := pgstore.MigrationSQL(*from, pgstore.WithTable(*table))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(sql)
}
