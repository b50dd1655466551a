package service_test

import (
	"context"
	"fmt"
	"net"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// An engine is served until its trainer leaves. The schema comes with the trainer.
func ExampleNew() {
	ticket, ctx := transport.NewTicket(), context.Background()
	s, err := service.New(service.Config{
		Ticket: ticket, Version: "1", Servers: 1, Trainers: 1,
		Open: func(sc schema.Schema) (service.Engine, error) {
			fmt.Println("the trainer wants table", sc.Sparse[0].Name)
			return engine.Open(engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.None}, sc)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	c, err := client.Dial(ctx, client.Config{
		Servers: []string{listener.Addr().String()}, Ticket: ticket, Version: "1", Trainers: 1,
		Schema: schema.Schema{Sparse: []schema.Sparse{{Name: "items", Dim: 1, Rule: schema.Rule{Name: "sgd", LR: 1}}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Session(0).PushRows(0, 1, []uint64{7, 8}, []float32{1, 2}))
	fmt.Println(c.Leave(ctx), <-ended, s.Stats().RowsPushed)
	// Output:
	// the trainer wants table items
	// <nil>
	// <nil> <nil> 2
}
