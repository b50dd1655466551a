package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// The test binary is also the trainer and the server that are killed: CLIENT_SERVER and
// CLIENT_SERVE, and CLIENT_TICKET, say whose.
func TestMain(m *testing.M) {
	if addr := os.Getenv("CLIENT_SERVE"); addr != "" {
		if err := serveTables(addr, os.Getenv("CLIENT_TICKET"), os.Getenv("CLIENT_DIR")); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if addr := os.Getenv("CLIENT_SERVER"); addr != "" {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is this one's turn
		fmt.Println("child:", pushForever(addr, os.Getenv("CLIENT_TICKET")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func processConfig(addr, ticket string, rank int) Config {
	t, err := transport.ParseTicket(ticket)
	if err != nil {
		panic(err)
	}
	return Config{Servers: []string{addr}, Ticket: t, Version: "1", Trainer: rank, Trainers: 2, Schema: testSchema()}
}

// pushForever pushes ones, and says how many pushes were acknowledged.
func pushForever(addr, ticket string) error {
	c, err := Dial(context.Background(), processConfig(addr, ticket, 1))
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		if err := c.Session(0).PushRows(0, 1, []uint64{7, 8}, []float32{1, 1, 1, 1, 1, 1}); err != nil {
			return err
		}
		if n%5 == 0 {
			if err := c.Flush(context.Background()); err != nil {
				return err
			}
			fmt.Println(n) // a write of its own
		}
	}
}

// A trainer that is killed has everything applied once that was acknowledged; when it
// is started again it goes on, and when it stays away it is lost and the others go on.
func TestKilledTrainer(t *testing.T) {
	leakcheck.Check(t)
	ticket, sc := transport.NewTicket(), testSchema()
	e := fake.New(fake.Config{Trainers: 2, Sessions: 1, Bounded: true, LostLeaves: true}, sc)
	s, err := service.New(service.Config{
		Ticket: ticket, Version: "1", Servers: 1, Trainers: 2, Schema: &sc, Open: func(schema.Schema) (service.Engine, error) { return e, nil },
		Times: cluster.Times{Join: 10 * time.Second, Heartbeat: 200 * time.Millisecond, DeadAfter: 4 * time.Second}, Rejoin: 4 * time.Second,
	})
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.Background(), l) }()
	c, err := Dial(context.Background(), processConfig(l.Addr().String(), ticket.String(), 0))
	must(t, err)
	var lives [3]*exec.Cmd // all started before, so that Rejoin has only a connection's time
	var in [3]io.Writer
	var outs [3]io.Reader
	for i := range lives {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CLIENT_SERVER="+l.Addr().String(), "CLIENT_TICKET="+ticket.String())
		in[i], err = cmd.StdinPipe()
		must(t, err)
		outs[i], err = cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lives[i] = cmd
	}
	for life, cmd := range lives {
		before := e.Last(1)
		_, err := in[life].Write([]byte("\n"))
		must(t, err)
		acknowledged := 0
		for lines := bufio.NewScanner(outs[life]); lines.Scan(); {
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				t.Errorf("the child says %q", lines.Text())
			}
			if acknowledged >= 100+50*life {
				must(t, cmd.Process.Kill())
				break
			}
		}
		_ = cmd.Wait() // killed
		if got := e.Last(1); got < before+uint64(acknowledged) {
			t.Errorf("life %d: %d pushes before, %d acknowledged, %d there", life, before, acknowledged, got)
		}
	}
	p, err := c.Session(0).PullRows(0, 2, []uint64{7}, make([]float32, 3)) // waits for the other one
	must(t, err)
	must(t, c.Session(0).Clock(1, 1))
	must(t, p.Wait())
	if losses := e.Losses(); len(losses) != 1 || !strings.Contains(losses[0].Error(), "trainer 1 is lost") {
		t.Errorf("%v", losses)
	}
	n := float32(e.Last(1))
	if row := e.Row(0, 8); !slices.Equal(row, []float32{n, n, n}) {
		t.Errorf("%v pushes, and the row is %v", n, row)
	}
	must(t, c.Leave(context.Background()))
	must(t, <-ended)
}
