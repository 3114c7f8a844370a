//go:build no_tags

package main

import (
	"context"
	"errors"

	"example.com/idempotency"
	"example.com/idempotency/internal/modeltest/versions"
)

const hasTags = false

var errNoTags = errors.New("this version has no tags")

func findable(idempotency.Store) []idempotency.Option { return nil }

func find(context.Context, *guard, idempotency.Key) ([]string, error) { return nil, errNoTags }

func erase(context.Context, *guard, idempotency.Key) ([]string, error) { return nil, errNoTags }

func tombstone(idempotency.RecordInfo) (l versions.Look) { return l }
