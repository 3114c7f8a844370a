package bench_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/idempotency"
	"example.com/idempotency/adapters/connectidempotency"
	"example.com/idempotency/adapters/grpcidempotency"
	"example.com/idempotency/adapters/humaidempotency"
	"example.com/idempotency/internal/load"
)

// The modules whose handlers get values, and not requests: those of huma, connect-go and grpc-go.

// humaApp has an operation of huma whose answer is of bytes.
func humaApp(work load.Work, protect func(huma.API) huma.Middlewares) http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("bench", "1"))
	type in struct{ RawBody []byte }
	type out struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
	op := huma.Operation{Method: http.MethodPost, Path: "/charges", DefaultStatus: http.StatusCreated}
	if protect != nil {
		op.Middlewares = protect(api)
	}
	huma.Register(api, op, func(context.Context, *in) (*out, error) {
		return &out{"application/json", work.Out}, nil
	})
	return mux
}

func protectHuma(api huma.API) huma.Middlewares {
	return huma.Middlewares{humaidempotency.Middleware(api, newGuard())}
}

// connectApp has a procedure of connect-go.
func connectApp(work load.Work, opts ...connect.HandlerOption) http.Handler {
	answer := &wrapperspb.BytesValue{Value: work.Out}
	return connect.NewUnaryHandler("/charges", func(context.Context, *connect.Request[wrapperspb.BytesValue]) (*connect.Response[wrapperspb.BytesValue], error) {
		return connect.NewResponse(answer), nil
	}, opts...)
}

// connectRow calls it.
func connectRow(name string, work load.Work, handler func() http.Handler, key func(fresh, answered string) string) *row {
	return &row{name: name, prepare: func(_, n int) []func(int) bool {
		message, err := proto.Marshal(&wrapperspb.BytesValue{Value: work.In})
		if err != nil {
			panic(err)
		}
		h, keys, answered := handler(), load.Keys(n), load.Key()
		var body bytes.Reader
		r := httptest.NewRequest(http.MethodPost, "http://bench.test/charges", io.NopCloser(&body))
		r.Header.Set("Content-Type", "application/proto")
		r.ContentLength = int64(len(message))
		answer := load.NewCaller(work).Answer
		send := func(key string) bool {
			delete(r.Header, "Idempotency-Key")
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			body.Reset(message)
			clear(answer.Header())
			answer.Status = 0
			h.ServeHTTP(&answer, r)
			return answer.Status <= http.StatusOK
		}
		send(answered)
		return []func(int) bool{func(i int) bool { return send(key(keys[i], answered)) }}
	}}
}

// grpcRow calls the interceptor as a server of grpc-go does.
func grpcRow(name string, work load.Work, key func(fresh, answered string) string) *row {
	return &row{name: name, prepare: func(_, n int) []func(int) bool {
		unary, _ := grpcidempotency.NewInterceptors(newGuard(), grpcidempotency.SharedScope)
		in, out := &wrapperspb.BytesValue{Value: work.In}, &wrapperspb.BytesValue{Value: work.Out}
		info := &grpc.UnaryServerInfo{FullMethod: "/bench.Bank/Pay"}
		keys, answered := load.Keys(n), load.Key()
		send := func(key string) bool {
			md := metadata.MD{"content-type": {"application/grpc"}}
			if key != "" {
				md["idempotency-key"] = []string{key}
			}
			ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(context.Background(), md), quietStream{})
			_, err := unary(ctx, in, info, func(context.Context, any) (any, error) { return out, nil })
			return err == nil
		}
		send(answered)
		return []func(int) bool{func(i int) bool { return send(key(keys[i], answered)) }}
	}}
}

// A quietStream takes what a call sets, and sends nothing.
type quietStream struct{}

func (quietStream) Method() string { return "/bench.Bank/Pay" }

func (quietStream) SetHeader(metadata.MD) error { return nil }

func (quietStream) SendHeader(metadata.MD) error { return nil }

func (quietStream) SetTrailer(metadata.MD) error { return nil }

func connectGuard(g *idempotency.Guard) connect.HandlerOption {
	return connect.WithInterceptors(connectidempotency.NewInterceptor(g, connectidempotency.SharedScope))
}

// own is a fingerprint by which a guard takes a call of Connect for a request like others.
func own(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.RawFingerprint(r, body)
}
