package service_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/heter/service"
	"github.com/ringo-ml/ringo/transport"
)

// The first member of a meeting says at its own port where the others find it, for this meeting alone; before that, and when it has gone, they are
// told so. Who has no ticket is not.
func TestPlace(t *testing.T) {
	meetings := make(chan service.GroupSpec, 2)
	addrs, listeners := make([]string, 2), make([]net.Listener, 2)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs[i], listeners[i] = l.Addr().String(), l
	}
	ticket := transport.NewTicket()
	var homes []*home
	for i := range addrs {
		homes = append(homes, newHomeAt(t, listeners[i], 1, func(c *service.Config) {
			c.Ticket, c.Index, c.Count, c.Addrs = ticket, i, 2, addrs
			c.Meet = func(ctx context.Context, m service.GroupSpec) (service.StepGroup, error) {
				meetings <- m
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}))
		homes[i].ticket = ticket
	}
	var guests []guest
	for i, h := range homes {
		g := h.guest(message.Hello{Trainers: 1, Index: i, Count: 2})
		g.hear(message.TypeWelcome)
		guests = append(guests, g)
	}
	here := []uint64{homes[0].life, homes[1].life}
	var places []rendezvous.Backend // of the first heter-trainer, and of the second
	for _, g := range guests {
		g.end(message.End{Step: 1, Attempt: 1, Rate: 1, Members: here})
		places = append(places, (<-meetings).Place)
	}
	ctx, notice := context.Background(), rendezvous.Endpoint{Address: "10.1.2.3:4567"}
	silent := func(want string) {
		t.Helper()
		if n, err := places[1].Lookup(ctx, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %+v, %v, want %q", n, err, want)
		}
	}
	silent("heter-trainer 0 at " + addrs[0] + " has not said yet where it listens for the meeting of step 1, attempt 1")
	withdraw, err := places[0].Publish(ctx, notice)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := places[1].Lookup(ctx, ""); err != nil || n.Address != notice.Address || n.Ticket != "" {
		t.Errorf("found %+v, %v, want %v", n, err, notice)
	}
	homes[0].ticket = transport.NewTicket()
	if _, _, err := transport.Dial(ctx, addrs[0], homes[0].ticket, transport.Hello{Version: "1", Purpose: transport.Heter}); err == nil {
		t.Error("who has another ticket was let in")
	}
	withdraw()
	silent("has not said yet")
	link, _, err := transport.Dial(ctx, addrs[0], ticket, transport.Hello{Version: "1", Purpose: transport.Heter})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	long := guest{link, homes[0]}
	long.say(message.TypeWhere, make([]byte, message.MaxWhere+1))
	_ = link.SetReadDeadline(time.Now().Add(10 * time.Second))
	if f, err := link.ReadHeader(); err == nil {
		t.Errorf("a name that is too long is answered by a %s", message.Name(f.Type))
	}
	listeners[0].Close()
	silent("asking heter-trainer 0 at " + addrs[0])
}
