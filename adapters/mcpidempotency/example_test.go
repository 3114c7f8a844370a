package mcpidempotency_test

import (
	"context"
	"fmt"
	"log"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"example.com/idempotency"
	"example.com/idempotency/adapters/mcpidempotency"
)

// An agent pays an invoice twice, because it has forgotten that it did. The money moves once.
func ExampleAddTool() {
	ctx := context.Background()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	if err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "bank", Version: "1"}, nil)
	mcpidempotency.AddTool(server, guard, mcpidempotency.Conversation("demo"), mcpidempotency.SameCall(),
		&mcp.Tool{Name: "pay", Description: "Pays an invoice. Safe to call again."},
		func(ctx context.Context, _ *mcp.CallToolRequest, in struct {
			Invoice string `json:"invoice"`
		},
		) (*mcp.CallToolResult, struct{}, error) {
			fmt.Println("paying", in.Invoice)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "paid"}}}, struct{}{}, nil
		})

	agentEnd, serverEnd := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, serverEnd, nil); err != nil {
		log.Fatal(err)
	}
	agent, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx, agentEnd, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close()
	for range 2 {
		res, err := agent.CallTool(ctx, &mcp.CallToolParams{Name: "pay", Arguments: map[string]any{"invoice": "i-7"}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Content[0].(*mcp.TextContent).Text, res.Meta[mcpidempotency.ReplayedMeta] == true)
	}
	// Output:
	// paying i-7
	// paid false
	// paid true
}
