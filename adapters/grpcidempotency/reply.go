package grpcidempotency

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/internal/rpc"
	"example.com/idempotency/problem"
)

// This file turns answers of gRPC into what is recorded, and back.

// messageOf returns a message of either of the two generations of the protobuf API.
func messageOf(v any) (proto.Message, error) {
	switch m := v.(type) {
	case proto.Message:
		return m, nil
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), nil
	default:
		return nil, fmt.Errorf("grpcidempotency: %T is not a protobuf message", v)
	}
}

// payload returns the bytes that a key is bound to. They are the same for equal messages, whatever
// the order in which a client has sent the entries of a map, and whether this version of the server knows
// all fields or another one does.
func payload(message any) ([]byte, error) {
	m, err := messageOf(message)
	if err != nil {
		return nil, err
	}
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
	return rpc.InOrder(b, schemaOf(m.ProtoReflect().Descriptor())), err
}

func schemaOf(d protoreflect.MessageDescriptor) rpc.Schema {
	return func(field uint64) rpc.Schema {
		if f := d.Fields().ByNumber(protoreflect.FieldNumber(field)); f != nil && f.Message() != nil {
			return schemaOf(f.Message())
		}
		return nil
	}
}

// Answer returns the Body of an idempotency.Resolution that settles a held key of a call as
// idempotency.Final: the answer that its retries get. It is a message, or an error if err is not nil.
func Answer(message proto.Message, err error) ([]byte, error) {
	if err != nil {
		return rpc.Encode(errorReply(err)), nil
	}
	r := messageReply(message)
	return rpc.Encode(r), r.Err
}

func messageReply(message any) *rpc.Reply {
	m, err := messageOf(message)
	if err != nil {
		return &rpc.Reply{Err: err}
	}
	r := &rpc.Reply{Type: string(m.ProtoReflect().Descriptor().FullName())}
	r.Body, r.Err = proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	return r
}

// errorReply returns what a client sees of an error.
func errorReply(err error) *rpc.Reply {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	r := &rpc.Reply{Code: rpc.CodeOfError(uint32(s.Code())), Message: s.Message()}
	for _, d := range s.Proto().GetDetails() {
		r.Details = append(r.Details, rpc.Detail{Type: d.GetTypeUrl(), Value: d.GetValue()})
		var info errdetails.ErrorInfo
		if r.Problem == "" && d.MessageIs(&info) && d.UnmarshalTo(&info) == nil {
			r.Problem = rpc.ProblemOf(info.GetDomain(), info.GetReason())
		}
	}
	return r
}

// An exchange is one call on its way through the guard.
type exchange struct {
	stream *stream // nil outside of a server, and where the guard only looks on

	res any
	err error
}

// hold keeps the metadata that the handler sets.
func (x *exchange) hold(ctx context.Context) {
	if s := grpc.ServerTransportStreamFromContext(ctx); s != nil {
		x.stream = &stream{ServerTransportStream: s}
	}
}

// run calls the handler and returns what is to be recorded.
func (x *exchange) run(ctx context.Context, next grpc.UnaryHandler, req any) *rpc.Reply {
	if x.stream != nil {
		ctx = grpc.NewContextWithServerTransportStream(ctx, x.stream)
	}
	x.res, x.err = next(ctx, req)
	var reply *rpc.Reply
	if x.err != nil {
		reply = errorReply(x.err)
	} else {
		reply = messageReply(x.res)
	}
	if x.stream != nil {
		header, trailer := x.stream.metadata()
		reply.Header, reply.Trailer = response.Recorded(http.Header(header), response.Settings{}), response.Recorded(http.Header(trailer), response.Settings{})
	}
	return reply
}

// send lets out what the handler has set.
func (x *exchange) send() {
	if x.stream != nil {
		x.stream.release()
	}
}

// replay returns the recorded answer.
func replay(ctx context.Context, r *rpc.Reply) (any, error) {
	var m proto.Message
	if r.Code == rpc.OK {
		t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(r.Type))
		if err == nil {
			m = t.New().Interface()
			err = proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(r.Body, m)
		}
		if err != nil { // another version of the server can read it
			return nil, refuse(ctx, rpc.Refuse(problem.StoreUnavailable))
		}
	}
	header := metadataOf(r.Header)
	header.Set(response.ReplayedHeader, "true")
	_ = grpc.SetHeader(ctx, header)                 // what fails if the header has been sent, or there is no server,
	_ = grpc.SetTrailer(ctx, metadataOf(r.Trailer)) // leaves nobody to tell
	if r.Code == rpc.OK {
		return m, nil
	}
	s := &statuspb.Status{Code: int32(r.Code), Message: r.Message}
	for _, d := range r.Details {
		s.Details = append(s.Details, &anypb.Any{TypeUrl: d.Type, Value: d.Value})
	}
	return nil, status.FromProto(s).Err()
}

func metadataOf(fields []answer.Field) metadata.MD {
	md := metadata.MD{}
	for _, f := range fields {
		md.Append(f.Name, f.Values...)
	}
	return md
}

// refuse returns the error of a refusal, and sets its fields.
func refuse(ctx context.Context, r *rpc.Refusal) error {
	header := metadata.MD{}
	r.Header(func(name, value string) { header.Set(name, value) })
	if throughGateway(ctx) {
		_ = grpc.SetHeader(ctx, header) // the status says the same
	} else {
		_ = grpc.SetTrailer(ctx, header) // after a header, no client repeats a call by its policy (gRFC A6)
	}
	details := []proto.Message{&errdetails.ErrorInfo{Reason: r.Reason(), Domain: rpc.Domain, Metadata: r.Metadata()}}
	if r.Retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.Retry)})
	}
	if r.Code == rpc.InvalidArgument {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "idempotency-key", Description: r.Message, Reason: r.Reason()},
		}})
	}
	s := &statuspb.Status{Code: int32(r.Code), Message: r.Message}
	for _, d := range details {
		if a, err := anypb.New(d); err == nil { // it is never another one: these messages can be marshalled
			s.Details = append(s.Details, a)
		}
	}
	return status.FromProto(s).Err()
}
