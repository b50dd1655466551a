package server_test

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// A server keeps a table for one trainer, and saves it when the trainer has left. What it has saved is read without a server.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	check(err)
	defer os.RemoveAll(dir)
	ticket, ctx := transport.NewTicket(), context.Background()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	cfg := server.Defaults()
	cfg.Listener, cfg.Ticket, cfg.Version, cfg.Servers, cfg.Trainers = listener, ticket, "1", 1, 1
	cfg.Mode, cfg.Durability, cfg.Dir = engine.Async, engine.Checkpoint, dir
	ended := make(chan error, 1)
	go func() {
		_, err := server.Run(ctx, cfg)
		ended <- err
	}()

	c, err := client.Dial(ctx, client.Config{
		Servers: []string{listener.Addr().String()}, Ticket: ticket, Version: "1", Trainers: 1,
		Schema: schema.Schema{Sparse: []schema.Sparse{{Name: "items", Dim: 2, Rule: schema.Rule{Name: "sgd", LR: 0.5}}}},
	})
	check(err)
	check(c.Session(0).PushRows(0, 1, []uint64{7}, []float32{1, -1}))
	check(c.Session(0).Clock(1, 0.5))
	check(c.Leave(ctx))
	check(<-ended)

	job, err := offline.Open(dir)
	check(err)
	fmt.Println(len(job.Servers), "server,", job.Rows(0), "row")
	check(job.Each(ctx, 0, func(keys []uint64, weights []float32) error {
		fmt.Println(keys, weights)
		return nil
	}))
	// Output:
	// 1 server, 1 row
	// [7] [-0.5 0.5]
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
