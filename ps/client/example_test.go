package client_test

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

// A job of one server and one trainer, in one process.
func Example() {
	ticket := transport.NewTicket()
	sc := schema.Schema{Sparse: []schema.Sparse{{Name: "ads", Dim: 2, Rule: schema.Rule{Name: "sgd", LR: 0.5}}}}

	// The server's process. It learns the schema from the trainer.
	var parameters *engine.Engine
	server, err := service.New(service.Config{
		Ticket: ticket, Version: "1", Servers: 1, Trainers: 1,
		Open: func(sc schema.Schema) (_ service.Engine, err error) {
			parameters, err = engine.Open(engine.Config{Trainers: 1, Mode: engine.Async, Durability: engine.None}, sc)
			return parameters, err
		},
	})
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background(), listener) }()

	// The trainer's process.
	c, err := client.Dial(context.Background(), client.Config{
		Servers: []string{listener.Addr().String()}, Ticket: ticket, Version: "1", Trainers: 1, Schema: sc,
	})
	check(err)
	session, keys, rows := c.Session(0), []uint64{7, 1 << 60}, make([]float32, 4)
	for step := uint64(1); step <= 3; step++ {
		pull, err := session.PullRows(0, step, keys, rows)
		check(err)
		check(pull.Wait())
		fmt.Println("step", step, rows)
		check(session.PushRows(0, step, keys, []float32{1, 2, 3, 4}))
		check(session.Clock(step, 0.5))
	}
	check(c.Leave(context.Background()))
	check(<-ended)
	check(parameters.Close())
	// Output:
	// step 1 [0 0 0 0]
	// step 2 [-0.5 -1 -1.5 -2]
	// step 3 [-1 -2 -3 -4]
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
