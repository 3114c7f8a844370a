package grpcidempotency_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/idempotency"
	"example.com/idempotency/adapters/grpcidempotency"
	"example.com/idempotency/adapters/grpcidempotency/grpcclient"
	"example.com/idempotency/client"
)

const charge = "/shop.v1.Shop/Charge"

// shop describes a service that protoc-gen-go-grpc would make of a .proto file.
func shop(handler func(context.Context, *wrapperspb.Int64Value) (*wrapperspb.StringValue, error)) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "shop.v1.Shop", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Charge", Handler: func(_ any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.Int64Value)
			if err := decode(in); err != nil {
				return nil, err
			}
			return i(ctx, in, &grpc.UnaryServerInfo{FullMethod: charge}, func(ctx context.Context, req any) (any, error) {
				return handler(ctx, req.(*wrapperspb.Int64Value))
			})
		}}},
	}
}

type userKey struct{}

// user is the scope: the caller whom the authentication has left in the context.
func user(ctx context.Context) (string, error) {
	name, ok := ctx.Value(userKey{}).(string)
	if !ok {
		return "", idempotency.ErrUnauthenticated
	}
	return name, nil
}

// authenticate stands outside the guard, and so verifies the caller of every replay too.
func authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	return next(context.WithValue(ctx, userKey{}, "alice"), req)
}

func Example() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	if err != nil {
		log.Fatal(err)
	}
	unary, stream := grpcidempotency.NewInterceptors(guard, user,
		grpcidempotency.WithProcedure(charge, idempotency.WithRecovery(idempotency.Hold)))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, unary), grpc.ChainStreamInterceptor(stream))
	charges := 0
	server.RegisterService(shop(func(ctx context.Context, amount *wrapperspb.Int64Value) (*wrapperspb.StringValue, error) {
		op, _ := idempotency.FromContext(ctx)
		charges++
		if amount.Value > 1000 {
			return nil, status.Error(codes.FailedPrecondition, "too much")
		}
		return wrapperspb.String(fmt.Sprintf("%s has paid %d", op.Key().Scope, amount.Value)), nil
	}), nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(grpcclient.Unary))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, amount := range []int64{100, 100, 5000, 5000} {
		// The program wants two things, and calls twice for each.
		ctx := client.IntentFor("charge", fmt.Sprint(amount)).Context(context.Background())
		var header metadata.MD
		res := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, charge, wrapperspb.Int64(amount), res, grpc.Header(&header))
		fmt.Println(res.Value, status.Code(err), header.Get("idempotent-replayed"))
	}
	fmt.Println(charges, "runs")
	// Output:
	// alice has paid 100 OK []
	// alice has paid 100 OK [true]
	//  FailedPrecondition []
	//  FailedPrecondition [true]
	// 2 runs
}
