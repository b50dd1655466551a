package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// Two processes prove to each other that they are of one job, and then exchange frames. Who lacks the ticket learns nothing.
func ExampleDial() {
	ticket := transport.NewTicket()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	me := func(rank int) transport.Hello {
		return transport.Hello{Version: "1", Purpose: transport.Control, Rank: rank, WorldSize: 2}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			link, peer, err := transport.ServerHandshake(context.Background(), conn, ticket, me(0), nil)
			if err != nil {
				continue // a stranger, who was told why
			}
			text := fmt.Appendf(nil, "hello, rank %d", peer.Rank)
			_ = link.WriteFrame(wire.Header{Type: wire.Data, Length: len(text)}, text, time.Minute)
			_ = link.CloseWrite(time.Minute, nil)
		}
	}()

	link, _, err := transport.Dial(context.Background(), listener.Addr().String(), ticket, me(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer link.Close()
	h, err := link.ReadHeader()
	if err != nil {
		fmt.Println(err)
		return
	}
	text := make([]byte, h.Length)
	_, err = link.ReadPayload(text)
	fmt.Println(string(text), err)
	_, _, err = transport.Dial(context.Background(), listener.Addr().String(), transport.NewTicket(), me(1))
	fmt.Println(errors.Is(err, transport.ErrTicket))
	// Output:
	// hello, rank 1 <nil>
	// true
}
