package connectidempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/idempotency"
	"example.com/idempotency/adapters/connectidempotency"
	"example.com/idempotency/adapters/connectidempotency/connectclient"
	"example.com/idempotency/client"
)

const chargeProcedure = "/shop.v1.Shop/Charge"

type userKey struct{}

// user is the scope: the caller whom the authentication has left in the context.
func user(ctx context.Context) (string, error) {
	name, ok := ctx.Value(userKey{}).(string)
	if !ok {
		return "", idempotency.ErrUnauthenticated
	}
	return name, nil
}

func Example() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	if err != nil {
		log.Fatal(err)
	}
	charges := 0
	charge := func(ctx context.Context, amount *wrapperspb.Int64Value) (*wrapperspb.StringValue, error) {
		op, _ := idempotency.FromContext(ctx)
		charges++
		if amount.Value > 1000 {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("too much"))
		}
		return wrapperspb.String(fmt.Sprintf("%s has paid %d", op.Key().Scope, amount.Value)), nil
	}
	mux := http.NewServeMux()
	mux.Handle(chargeProcedure, connect.NewUnaryHandlerSimple(chargeProcedure, charge, connect.WithInterceptors(
		connect.UnaryInterceptorFunc(authenticate),
		connectidempotency.NewInterceptor(guard, user,
			connectidempotency.WithProcedure(chargeProcedure, idempotency.WithRecovery(idempotency.Hold))),
	)))
	server := httptest.NewServer(mux)
	defer server.Close()

	shop := connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](server.Client(), server.URL+chargeProcedure,
		connect.WithInterceptors(connectclient.NewInterceptor()))
	for _, amount := range []int64{100, 100, 5000, 5000} {
		// The program wants two things, and calls twice for each.
		ctx := client.IntentFor("charge", fmt.Sprint(amount)).Context(context.Background())
		res, err := shop.CallUnary(ctx, connect.NewRequest(wrapperspb.Int64(amount)))
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(res.Msg.Value, res.Header().Get("Idempotent-Replayed") == "true")
	}
	fmt.Println(charges, "runs")
	// Output:
	// alice has paid 100 false
	// alice has paid 100 true
	// failed_precondition: too much
	// failed_precondition: too much
	// 2 runs
}

// authenticate stands outside the guard, and so verifies the caller of every replay too.
func authenticate(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		return next(context.WithValue(ctx, userKey{}, "alice"), req)
	}
}
