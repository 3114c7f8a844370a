package rpctest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"example.com/idempotency"
	"example.com/idempotency/adapters/grpcidempotency"
	"example.com/idempotency/internal/rpctest/bankv1"
)

// grpcTransports are servers and clients of grpc-go, and its client with a server of Connect, and
// the other way round.
func grpcTransports() []transport {
	return []transport{
		{"grpc", func(t *testing.T, b *bank, guard *idempotency.Guard, s settings) client {
			return grpcClient(t, serveGRPC(t, b, guard, s))
		}},
		{"grpc, client of Connect", func(t *testing.T, b *bank, guard *idempotency.Guard, s settings) client {
			return connectClient(t, "http://"+serveGRPC(t, b, guard, s), connect.WithGRPC())
		}},
		{"connect, client of grpc", func(t *testing.T, b *bank, guard *idempotency.Guard, s settings) client {
			return grpcClient(t, strings.TrimPrefix(serveConnect(t, b, guard, s), "http://"))
		}},
	}
}

// serveGRPC starts a server of grpc-go, and returns its address.
func serveGRPC(t *testing.T, b *bank, guard *idempotency.Guard, s settings) string {
	unary, streams := []grpc.UnaryServerInterceptor{recoverPanics, grpcTenant(b)}, []grpc.StreamServerInterceptor{}
	if guard != nil {
		opts := []grpcidempotency.Option{grpcidempotency.WithStreams(s.streams), grpcidempotency.WithOutcome(s.outcome)}
		for _, procedure := range s.hold {
			opts = append(opts, grpcidempotency.WithProcedure(procedure, idempotency.WithRecovery(idempotency.Hold)))
		}
		scope := s.scope
		if scope == nil {
			scope = tenantOf
		}
		guarded, stream := grpcidempotency.NewInterceptors(guard, scope, opts...)
		unary, streams = append(unary, guarded), append(streams, stream)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
	bankv1.RegisterBankServer(server, &grpcBank{bank: b})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// recoverPanics does what net/http does for handlers.
func recoverPanics(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = status.Error(codes.Internal, "panic")
		}
	}()
	return next(ctx, req)
}

func grpcTenant(b *bank) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		b.watch(ctx)
		tenant := strings.Join(metadata.ValueFromIncomingContext(ctx, "tenant"), ",")
		return next(context.WithValue(ctx, tenantKey{}, tenant), req)
	}
}

func dial(t *testing.T, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	conn, err := grpc.NewClient(address, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(8<<20)))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func grpcClient(t *testing.T, address string) client {
	c := bankv1.NewBankClient(dial(t, address))
	return func(ctx context.Context, call call) answer {
		ctx = metadata.NewOutgoingContext(ctx, metadata.MD(call.md))
		var header, trailer metadata.MD
		opts := []grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer)}
		var res *bankv1.PayResponse
		var err error
		switch call.method {
		case "Refund":
			res, err = c.Refund(ctx, call.req, opts...)
		case "Balance":
			res, err = c.Balance(ctx, call.req, opts...)
		case "Watch":
			stream, err := c.Watch(ctx, call.req)
			if err != nil {
				return grpcAnswer(nil, err, nil, nil)
			}
			for n := 0; ; n++ {
				if _, err := stream.Recv(); errors.Is(err, io.EOF) {
					return answer{Response: strings.Repeat("message", n)}
				} else if err != nil {
					header, _ := stream.Header()
					return grpcAnswer(nil, err, header, stream.Trailer())
				}
			}
		default:
			res, err = c.Pay(ctx, call.req, opts...)
		}
		return grpcAnswer(res, err, header, trailer)
	}
}

func grpcAnswer(res *bankv1.PayResponse, err error, header, trailer metadata.MD) answer {
	a := answer{
		Header: fields(header), Trailer: fields(trailer), Replayed: slices.Equal(header["idempotent-replayed"], []string{"true"}),
		Problem: first(header, "idempotency-error") + first(trailer, "idempotency-error"),
	}
	if err == nil {
		a.Response = text(res)
		return a
	}
	s, _ := status.FromError(err)
	a.Code, a.Message = uint32(s.Code()), s.Message()
	for _, d := range s.Details() {
		if m, ok := d.(proto.Message); ok {
			a.Details = append(a.Details, text(m))
		} else {
			a.Details = append(a.Details, fmt.Sprint(d))
		}
	}
	return a
}

// grpcBank is the bank as a service of grpc-go.
type grpcBank struct {
	bank *bank
}

func (s *grpcBank) Pay(ctx context.Context, req *bankv1.PayRequest) (*bankv1.PayResponse, error) {
	return s.answer(ctx, s.bank.run(ctx, req))
}

func (s *grpcBank) Refund(ctx context.Context, req *bankv1.PayRequest) (*bankv1.PayResponse, error) {
	return s.answer(ctx, s.bank.run(ctx, req))
}

func (s *grpcBank) Balance(ctx context.Context, req *bankv1.PayRequest) (*bankv1.PayResponse, error) {
	return s.answer(ctx, s.bank.run(ctx, req))
}

func (s *grpcBank) Watch(req *bankv1.PayRequest, stream grpc.ServerStreamingServer[bankv1.PayResponse]) error {
	for range 3 {
		if err := stream.Send(s.bank.run(stream.Context(), req).res); err != nil {
			return err
		}
	}
	return nil
}

func (s *grpcBank) answer(ctx context.Context, r reply) (*bankv1.PayResponse, error) {
	if r.plain != nil {
		return nil, r.plain
	}
	_ = grpc.SetHeader(ctx, metadata.MD(r.header))
	_ = grpc.SetTrailer(ctx, metadata.MD(r.trailer))
	if r.res.GetNote() == "header at once" {
		_ = grpc.SendHeader(ctx, metadata.Pairs("x-at-once", "yes"))
	}
	if r.code == ok {
		return r.res, nil
	}
	st := status.New(codes.Code(r.code), r.message)
	for _, m := range r.details {
		st, _ = st.WithDetails(protoadapt.MessageV1Of(m))
	}
	return nil, st.Err()
}
