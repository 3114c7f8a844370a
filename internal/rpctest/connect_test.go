package rpctest_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"example.com/idempotency"
	"example.com/idempotency/adapters/connectidempotency"
	"example.com/idempotency/internal/rpctest/bankv1"
	"example.com/idempotency/internal/rpctest/bankv1/bankv1connect"
)

func transports() []transport {
	return append(grpcTransports(), []transport{
		{"connect", connectServer()},
		{"connect, JSON", connectServer(connect.WithProtoJSON())},
		{"connect, gRPC", connectServer(connect.WithGRPC())},
		{"connect, gRPC-Web", connectServer(connect.WithGRPCWeb())},
		{"connect, gRPC-Web, JSON", connectServer(connect.WithGRPCWeb(), connect.WithProtoJSON())},
	}...)
}

// onEachTransport runs a test over each transport.
func onEachTransport(t *testing.T, test func(t *testing.T, tr transport)) {
	t.Helper()
	for _, tr := range transports() {
		t.Run(tr.name, func(t *testing.T) {
			test(t, tr)
		})
	}
}

// connectServer serves the bank by Connect.
func connectServer(protocol ...connect.ClientOption) func(*testing.T, *bank, *idempotency.Guard, settings) client {
	return func(t *testing.T, b *bank, guard *idempotency.Guard, s settings) client {
		return connectClient(t, serveConnect(t, b, guard, s), protocol...)
	}
}

func serveConnect(t *testing.T, b *bank, guard *idempotency.Guard, s settings) (url string) {
	var opts []connect.HandlerOption
	if guard != nil {
		opts = append(opts, connect.WithInterceptors(connectTenant{b}, connectGuard(guard, s)))
	}
	_, handler := bankv1connect.NewBankHandler(&connectBank{b}, opts...)
	return serveH2C(t, handler)
}

func connectGuard(guard *idempotency.Guard, s settings) connect.Interceptor {
	opts := []connectidempotency.Option{connectidempotency.WithStreams(s.streams), connectidempotency.WithOutcome(s.outcome)}
	for _, procedure := range s.hold {
		opts = append(opts, connectidempotency.WithProcedure(procedure, idempotency.WithRecovery(idempotency.Hold)))
	}
	scope := s.scope
	if scope == nil {
		scope = tenantOf
	}
	return connectidempotency.NewInterceptor(guard, scope, opts...)
}

type tenantKey struct{}

func tenantOf(ctx context.Context) (string, error) {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant, nil
}

// connectTenant stands for the authentication, and for other interceptors outside the guard.
type connectTenant struct{ bank *bank }

func (i connectTenant) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		i.bank.watch(ctx)
		return next(context.WithValue(ctx, tenantKey{}, req.Header().Get("tenant")), req)
	}
}

func (connectTenant) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (connectTenant) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// serveH2C starts a server for HTTP/1.1 and HTTP/2 without TLS.
func serveH2C(t *testing.T, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func httpClient(t *testing.T) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13}, DialContext: (&net.Dialer{}).DialContext}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func connectClient(t *testing.T, url string, opts ...connect.ClientOption) client {
	c := bankv1connect.NewBankClient(httpClient(t), url, opts...)
	return func(ctx context.Context, call call) answer {
		req := connect.NewRequest(call.req)
		for name, values := range call.md {
			req.Header()[http.CanonicalHeaderKey(name)] = values
		}
		switch call.method {
		case "Refund":
			return connectAnswer(c.Refund(ctx, req))
		case "Balance":
			return connectAnswer(c.Balance(ctx, req))
		case "Watch":
			stream, err := c.Watch(ctx, req)
			if err != nil {
				return connectAnswer(nil, err)
			}
			defer func() { _ = stream.Close() }()
			n := 0
			for stream.Receive() {
				n++
			}
			if stream.Err() != nil {
				return connectAnswer(nil, stream.Err())
			}
			return answer{Response: strings.Repeat("message", n)}
		default:
			return connectAnswer(c.Pay(ctx, req))
		}
	}
}

// connectAnswer returns what a client sees. Connect puts the header and the trailer of an error into
// one.
func connectAnswer(res *connect.Response[bankv1.PayResponse], err error) answer {
	if err == nil {
		return answer{
			Response: text(res.Msg), Header: fields(res.Header()), Trailer: fields(res.Trailer()),
			Replayed: res.Header().Get("Idempotent-Replayed") == "true",
		}
	}
	var e *connect.Error
	if !errors.As(err, &e) {
		return answer{Code: unknown, Message: "client: " + err.Error()}
	}
	a := answer{
		Code: uint32(e.Code()), Message: e.Message(), Header: fields(e.Meta()),
		Replayed: e.Meta().Get("Idempotent-Replayed") == "true", Problem: e.Meta().Get("Idempotency-Error"),
	}
	for _, d := range e.Details() {
		m, err := d.Value()
		if err != nil {
			a.Details = append(a.Details, err.Error())
			continue
		}
		a.Details = append(a.Details, text(m))
	}
	return a
}

// connectBank is the bank as a handler of Connect.
type connectBank struct{ bank *bank }

func (s *connectBank) Pay(ctx context.Context, req *connect.Request[bankv1.PayRequest]) (*connect.Response[bankv1.PayResponse], error) {
	return s.answer(ctx, s.bank.run(ctx, req.Msg))
}

func (s *connectBank) Refund(ctx context.Context, req *connect.Request[bankv1.PayRequest]) (*connect.Response[bankv1.PayResponse], error) {
	return s.answer(ctx, s.bank.run(ctx, req.Msg))
}

func (s *connectBank) Balance(ctx context.Context, req *connect.Request[bankv1.PayRequest]) (*connect.Response[bankv1.PayResponse], error) {
	return s.answer(ctx, s.bank.run(ctx, req.Msg))
}

func (s *connectBank) Watch(ctx context.Context, req *connect.Request[bankv1.PayRequest], stream *connect.ServerStream[bankv1.PayResponse]) error {
	for range 3 {
		if err := stream.Send(s.bank.run(ctx, req.Msg).res); err != nil {
			return err
		}
	}
	return nil
}

func (s *connectBank) answer(ctx context.Context, r reply) (*connect.Response[bankv1.PayResponse], error) {
	switch {
	case r.plain != nil:
		return nil, r.plain
	case r.code == ok:
		res := connect.NewResponse(r.res)
		setFields(res.Header(), r.header)
		setFields(res.Trailer(), r.trailer)
		return res, nil
	}
	err := connect.NewError(connect.Code(r.code), errors.New(r.message))
	for _, m := range r.details {
		d, _ := connect.NewErrorDetail(m)
		err.AddDetail(d)
	}
	setFields(err.Meta(), r.header)
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		setFields(info.ResponseTrailer(), r.trailer)
		info.ResponseHeader().Set("X-By-Context", "yes")
	}
	return nil, err
}

func setFields(h http.Header, from map[string][]string) {
	for name, values := range from {
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				v = connect.EncodeBinaryHeader([]byte(v))
			}
			h.Add(name, v)
		}
	}
}
