module example.com/idempotency

go 1.26.0
