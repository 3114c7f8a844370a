module example.com/idempotency/internal/rpctest

go 1.26.0

replace (
	example.com/idempotency => ../../
	example.com/idempotency/adapters/connectidempotency => ../../adapters/connectidempotency
	example.com/idempotency/adapters/grpcidempotency => ../../adapters/grpcidempotency
)

require (
	connectrpc.com/connect v1.21.1
	example.com/idempotency v0.0.0
	example.com/idempotency/adapters/connectidempotency v0.0.0
	example.com/idempotency/adapters/grpcidempotency v0.0.0
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.32.0
	github.com/stretchr/testify v1.12.1
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261012220534-4341edf3f941 // indirect
)
