package connectidempotency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/internal/rpc"
	"example.com/idempotency/problem"
)

// This file turns answers of Connect into what is recorded, and back.

// payload returns the bytes that a key is bound to. They are the same for equal messages, whatever
// the order in which a client has sent the entries of a map, and whether this version of the server knows
// all fields or another one does.
func payload(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("connectidempotency: %T is not a protobuf message", message)
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

// run calls the handler and returns what is to be recorded.
func (x *exchange) run(ctx context.Context, next connect.UnaryFunc, req connect.AnyRequest) *rpc.Reply {
	x.res, x.err = next(ctx, req)
	reply := replyOf(x.res, x.err)
	header, trailer := http.Header{}, http.Header{}
	if x.info != nil {
		added(header, x.header, x.info.ResponseHeader())
		added(trailer, x.trailer, x.info.ResponseTrailer())
	}
	if x.err == nil {
		added(header, nil, x.res.Header())
		added(trailer, nil, x.res.Trailer())
	}
	reply.Header, reply.Trailer = response.Recorded(header, response.Settings{}), response.Recorded(trailer, response.Settings{})
	return reply
}

// added adds to a header what a run has added to another one.
func added(to, before, after http.Header) {
	for name, values := range after {
		if n := len(before[name]); n <= len(values) && slices.Equal(values[:n], before[name]) {
			values = values[n:]
		}
		if len(values) > 0 {
			to[name] = append(to[name], values...)
		}
	}
}

func replyOf(res connect.AnyResponse, err error) *rpc.Reply {
	if err != nil {
		return errorReply(err)
	}
	if res == nil { // DefaultOutcome
		return &rpc.Reply{}
	}
	return messageReply(res.Any())
}

func messageReply(message any) *rpc.Reply {
	r := &rpc.Reply{}
	m, ok := message.(proto.Message)
	if !ok {
		r.Err = fmt.Errorf("connectidempotency: %T is not a protobuf message", message)
		return r
	}
	r.Type = string(m.ProtoReflect().Descriptor().FullName())
	r.Body, r.Err = proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	return r
}

// typePrefix makes the URL of a type of its name.
const typePrefix = "type.googleapis.com/"

// errorReply returns what a client sees of an error.
func errorReply(err error) *rpc.Reply {
	var e *connect.Error
	if !errors.As(err, &e) || e == nil {
		r := &rpc.Reply{Code: rpc.Unknown, Message: err.Error()}
		switch {
		case errors.Is(err, context.Canceled):
			r.Code = rpc.Canceled
		case errors.Is(err, context.DeadlineExceeded):
			r.Code = rpc.DeadlineExceeded
		}
		return r
	}
	r := &rpc.Reply{Code: rpc.CodeOfError(uint32(e.Code())), Message: e.Message()}
	for _, d := range e.Details() {
		r.Details = append(r.Details, rpc.Detail{Type: typePrefix + d.Type(), Value: d.Bytes()})
		var info errdetails.ErrorInfo
		if d.Type() == string(info.ProtoReflect().Descriptor().FullName()) && proto.Unmarshal(d.Bytes(), &info) == nil && r.Problem == "" {
			r.Problem = rpc.ProblemOf(info.GetDomain(), info.GetReason())
		}
	}
	if !connect.IsWireError(err) { // Connect does not send the metadata of those
		r.Meta = response.Recorded(e.Meta(), response.Settings{})
	}
	return r
}

// replay returns the recorded answer.
func (x *exchange) replay(r *rpc.Reply, spec connect.Spec) (connect.AnyResponse, error) {
	x.reset()
	if r.Code != rpc.OK {
		return nil, x.replayError(r)
	}
	m, err := newMessage(r.Type, spec)
	if err == nil {
		err = proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(r.Body, m)
	}
	if err != nil { // another version of the server can read it
		return nil, x.refuse(rpc.Refuse(problem.StoreUnavailable))
	}
	res := &replayed{connect.NewResponse(&struct{}{}), m}
	add(res.Header(), r.Header)
	add(res.Trailer(), r.Trailer)
	res.Header().Set(response.ReplayedHeader, "true")
	return res, nil
}

func (x *exchange) replayError(r *rpc.Reply) error {
	e := connect.NewError(connect.Code(r.Code), errors.New(r.Message))
	for _, d := range r.Details {
		addDetail(e, &anypb.Any{TypeUrl: d.Type, Value: d.Value})
	}
	add(e.Meta(), r.Meta)
	header := e.Meta()
	if x.info != nil {
		header = x.info.ResponseHeader()
		add(header, r.Header)
		add(x.info.ResponseTrailer(), r.Trailer)
	}
	header.Set(response.ReplayedHeader, "true")
	return e
}

// reset takes back what a run has set whose answer does not count.
func (x *exchange) reset() {
	if x.info == nil {
		return
	}
	restore(x.info.ResponseHeader(), x.header)
	restore(x.info.ResponseTrailer(), x.trailer)
}

func restore(h, before http.Header) {
	clear(h)
	maps.Copy(h, before)
}

// refuse returns the error of a refusal.
func (x *exchange) refuse(r *rpc.Refusal) error {
	x.reset()
	return errorOf(r)
}

func errorOf(r *rpc.Refusal) *connect.Error {
	e := connect.NewError(connect.Code(r.Code), errors.New(r.Message))
	addDetail(e, &errdetails.ErrorInfo{Reason: r.Reason(), Domain: rpc.Domain, Metadata: r.Metadata()})
	if r.Retry > 0 {
		addDetail(e, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.Retry)})
	}
	if r.Code == rpc.InvalidArgument {
		addDetail(e, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "idempotency-key", Description: r.Message, Reason: r.Reason()},
		}})
	}
	r.Header(e.Meta().Set)
	return e
}

func addDetail(e *connect.Error, m proto.Message) {
	d, err := connect.NewErrorDetail(m)
	if err == nil { // it is never another one: these messages can be marshalled
		e.AddDetail(d)
	}
}

func add(h http.Header, fields []answer.Field) {
	for _, f := range fields {
		h[f.Name] = append(h[f.Name], f.Values...)
	}
}

// newMessage returns an empty message of a type that is linked in, or that the procedure answers
// with.
func newMessage(name string, spec connect.Spec) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err == nil {
		return t.New().Interface(), nil
	}
	if d, ok := spec.Schema.(protoreflect.MethodDescriptor); ok && d.Output().FullName() == protoreflect.FullName(name) {
		return dynamicpb.NewMessage(d.Output()), nil
	}
	return nil, err
}

// replayed is a response whose message has a type that is known only now. The embedded response has
// header and trailer.
type replayed struct {
	connect.AnyResponse
	message proto.Message
}

// Any implements [connect.AnyResponse].
func (r *replayed) Any() any { return r.message }
