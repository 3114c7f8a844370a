package rpctest_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"example.com/idempotency"
	"example.com/idempotency/adapters/connectidempotency"
	"example.com/idempotency/adapters/grpcidempotency"
	"example.com/idempotency/internal/rpctest/bankv1"
	"example.com/idempotency/internal/rpctest/bankv1/bankv1connect"
)

// orders has a message whose fields behind notes came with the second version of a service.
const orders = `
	name: "orders.proto" package: "orders" syntax: "proto3"
	message_type {
		name: "Order"
		field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "account" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
		field { name: "card" number: 3 type: TYPE_INT64 label: LABEL_OPTIONAL oneof_index: 0 }
		field { name: "part" number: 5 type: TYPE_MESSAGE type_name: ".orders.Order" label: LABEL_OPTIONAL }
		field { name: "parts" number: 6 type: TYPE_MESSAGE type_name: ".orders.Order.PartsEntry" label: LABEL_REPEATED }
		field { name: "notes" number: 7 type: TYPE_STRING label: LABEL_REPEATED }
		field { name: "memo" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "tags" number: 8 type: TYPE_STRING label: LABEL_REPEATED }
		field { name: "counts" number: 9 type: TYPE_INT64 label: LABEL_REPEATED }
		field { name: "rest" number: 10 type: TYPE_MESSAGE type_name: ".orders.Order" label: LABEL_OPTIONAL }
		nested_type {
			name: "PartsEntry" options { map_entry: true }
			field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".orders.Order" label: LABEL_OPTIONAL }
		}
		oneof_decl { name: "to" }
	}`

// A version is one version of the service, or of its client.
type version struct {
	order protoreflect.MessageDescriptor
}

func versions(t *testing.T) (older, newer version) {
	t.Helper()
	load := func(older bool) version {
		var file descriptorpb.FileDescriptorProto
		require.NoError(t, prototext.Unmarshal([]byte(orders), &file))
		if older {
			file.MessageType[0].Field = file.MessageType[0].Field[:6]
		}
		d, err := protodesc.NewFile(&file, nil)
		require.NoError(t, err)
		return version{d.Messages().ByName("Order")}
	}
	return load(true), load(false)
}

func (v version) serveGRPC(t *testing.T, b *bank, guard *idempotency.Guard) string {
	unary, _ := grpcidempotency.NewInterceptors(guard, grpcidempotency.SharedScope)
	server := grpc.NewServer(grpc.UnaryInterceptor(unary))
	pay := func(_ any, ctx context.Context, decode func(any) error, guarded grpc.UnaryServerInterceptor) (any, error) {
		m := dynamicpb.NewMessage(v.order)
		if err := decode(m); err != nil {
			return nil, err
		}
		return guarded(ctx, m, &grpc.UnaryServerInfo{FullMethod: bankv1.Bank_Pay_FullMethodName}, func(ctx context.Context, _ any) (any, error) {
			return b.run(ctx, &bankv1.PayRequest{Case: "plain"}).res, nil
		})
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bank.v1.Bank", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Pay", Handler: pay}},
	}, struct{}{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return "http://" + listener.Addr().String()
}

func (v version) serveConnect(t *testing.T, b *bank, guard *idempotency.Guard) string {
	return serveH2C(t, connect.NewUnaryHandler(bankv1connect.BankPayProcedure,
		func(ctx context.Context, _ *connect.Request[dynamicpb.Message]) (*connect.Response[bankv1.PayResponse], error) {
			return connect.NewResponse(b.run(ctx, &bankv1.PayRequest{Case: "plain"}).res), nil
		},
		connect.WithInterceptors(connectidempotency.NewInterceptor(guard, connectidempotency.SharedScope)),
		connect.WithRequestInitializer(func(_ connect.Spec, m any) error {
			*m.(*dynamicpb.Message) = *dynamicpb.NewMessage(v.order)
			return nil
		})))
}

// message reads an order as a client of this version has it.
func (v version) message(t *testing.T, json string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(v.order)
	require.NoError(t, protojson.Unmarshal([]byte(json), m), json)
	return m
}

// A call is bound to the same payload in a version of the service that does not know all of its fields: in
// whichever order the fields stand there, and whichever of the two versions has run it.
func TestVersionsOfAMessageAgree(t *testing.T) {
	const same, others = true, false
	many := `{"a":{"account":"x","memo":"y"},"b":{"id":"1"},"c":{"id":"2"},"d":{"id":"3"},"e":{"id":"4"}}`
	for name, tt := range map[string]struct {
		first, second string
		same          bool
	}{
		"nothing new":                    {`{"id":"1","account":"a"}`, `{"id":"1","account":"a"}`, same},
		"a new field behind a oneof":     {`{"account":"a","tags":["t"]}`, `{"account":"a","tags":["t"]}`, same},
		"a new field between others":     {`{"account":"a","memo":"m","notes":["n"]}`, `{"account":"a","memo":"m","notes":["n"]}`, same},
		"in a message":                   {`{"part":{"card":1,"memo":"m"}}`, `{"part":{"card":1,"memo":"m"}}`, same},
		"in a message in a message":      {`{"part":{"part":{"card":1,"memo":"m"}}}`, `{"part":{"part":{"card":1,"memo":"m"}}}`, same},
		"in the values of a map":         {`{"parts":` + many + `}`, `{"parts":` + many + `}`, same},
		"new lists":                      {`{"tags":["b","a"],"counts":[8,1,16,2]}`, `{"tags":["b","a"],"counts":[8,1,16,2]}`, same},
		"a new message":                  {`{"rest":{"id":"1","memo":"m"}}`, `{"rest":{"id":"1","memo":"m"}}`, same},
		"another new field":              {`{"memo":"m"}`, `{"memo":"n"}`, others},
		"a new field that was not there": {`{"id":"1"}`, `{"id":"1","memo":"n"}`, others},
		"the other order of a list":      {`{"notes":["a","b"]}`, `{"notes":["b","a"]}`, others},
		"the other order of a new list":  {`{"tags":["a","b"]}`, `{"tags":["b","a"]}`, others},
		"text that looks like fields":    {`{"id":"8108"}`, `{"id":"0881"}`, others},
		"numbers that look like fields":  {`{"counts":[8,1,16,2]}`, `{"counts":[16,2,8,1]}`, others},
		"a field of another number":      {`{"notes":["a"]}`, `{"tags":["a"]}`, others},
		// The limit that docs/how-to/upgrading.md names: the older version takes this message for text.
		"a new message with a oneof": {`{"rest":{"account":"a","memo":"m"}}`, `{"rest":{"account":"a","memo":"m"}}`, others},
	} {
		t.Run(name, func(t *testing.T) {
			older, newer := versions(t)
			for _, from := range []version{older, newer} {
				to := newer
				if from == newer {
					to = older
				}
				sent := connect.WithCodec(codec{anyOrder: strings.Contains(tt.first, "parts")})
				sends(t, from.serveGRPC, to.serveGRPC, newer, tt.first, tt.second, tt.same, sent, connect.WithGRPC())
				sends(t, from.serveConnect, to.serveConnect, newer, tt.first, tt.second, tt.same, sent)
				sends(t, from.serveGRPC, to.serveConnect, newer, tt.first, tt.second, tt.same, sent, connect.WithGRPC())
			}
		})
	}
}

// An older version drops what it does not know of JSON. So it has run another call than the newer one has read.
func TestVersionsOfAMessageInJSON(t *testing.T) {
	older, newer := versions(t)
	for json, same := range map[string]bool{
		`{"account":"a","notes":["n"]}`:            true,
		`{"account":"a","notes":["n"],"memo":"m"}`: false,
	} {
		sends(t, older.serveConnect, newer.serveConnect, newer, json, json, same, connect.WithProtoJSON())
		sends(t, newer.serveConnect, older.serveConnect, newer, json, json, same, connect.WithProtoJSON())
	}
}

type serve = func(*testing.T, *bank, *idempotency.Guard) string

// A codec encodes orders as generated code does, or in any order at all: that is how package dynamicpb does
// it by itself, for fields and entries of maps.
type codec struct{ anyOrder bool }

func (codec) Name() string { return "proto" }

func (c codec) Marshal(m any) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: !c.anyOrder}.Marshal(m.(proto.Message))
}

func (codec) Unmarshal(data []byte, m any) error { return proto.Unmarshal(data, m.(proto.Message)) }

// sends sends a call to one server, and the same or another one with its key to a second server.
func sends(t *testing.T, from, to serve, client version, first, second string, same bool, opts ...connect.ClientOption) {
	t.Helper()
	b, guard := newBank(), newGuard(t, idempotency.NewMemoryStore())
	call := func(url, json string) answer {
		c := connect.NewClient[dynamicpb.Message, bankv1.PayResponse](httpClient(t), url+bankv1connect.BankPayProcedure, opts...)
		req := connect.NewRequest(client.message(t, json))
		req.Header().Set("Idempotency-Key", "key")
		return connectAnswer(c.CallUnary(t.Context(), req))
	}
	got := call(from(t, b, guard), first)
	require.Zero(t, got.Code, got.Message)
	url := to(t, b, guard)
	for range 5 {
		if again := call(url, second); same {
			require.True(t, again.Replayed, "%+v", again)
		} else {
			requireRefusal(t, again, failedPrecondition, "key-reused")
		}
	}
	require.Equal(t, 1, b.ran("plain"))
}
