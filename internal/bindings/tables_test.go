package bindings_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/transport"
)

const oneTable = `{"sparse": [{"name": "t", "dim": 2, "rule": {"name": "sgd", "lr": 0.5}, "init": {"name": "constant", "value": 1}}]}`

// withServer runs body on two ranks with a server of tables in mode bsp.
func withServer(t *testing.T, body func(job *ringo.Job) error) {
	withServerOf(t, func(*server.Config) {}, body)
}

func withServerOf(t *testing.T, change func(*server.Config), body func(job *ringo.Job) error) {
	for rank, err := range endsAtServer(t, change, body) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// endsAtServer runs body on two ranks with a server configured by change, and returns the ranks'
// errors.
func endsAtServer(t *testing.T, change func(*server.Config), body func(job *ringo.Job) error) (errs [2]error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ticket := transport.NewTicket()
	cfg := server.Defaults()
	cfg.Listener, cfg.Ticket, cfg.Version, cfg.Servers, cfg.Trainers, cfg.Sessions, cfg.Mode = l, ticket, ringo.Version, 1, 2, 1, engine.BSP
	change(&cfg)
	var group, ranks sync.WaitGroup
	group.Go(func() {
		if _, err := server.Run(ctx, cfg); err != nil && ctx.Err() == nil {
			t.Errorf("the server: %v", err)
		}
	})
	meeting := freeport.Address(t)
	for rank := range 2 {
		ranks.Go(func() {
			errs[rank] = ringo.Run(t.Context(), ringo.Config{
				Size: 2, Rank: rank, Rendezvous: meeting, ParameterServers: []string{l.Addr().String()}, Transport: ringo.TransportTCP,
				Lookup: func(name string) (string, bool) {
					if name != launch.TicketVar {
						return "", false
					}
					return ticket.String(), true
				},
			}, body)
		})
	}
	ranks.Wait() // each hears why the other has failed
	if errors.Join(errs[:]...) != nil {
		cancel()
	}
	group.Wait()
	return errs
}

// TestEndWithoutLeave fails a rank that ends without its client's Leave, instead of a wait by the
// servers.
func TestEndWithoutLeave(t *testing.T) {
	errs := endsAtServer(t, func(*server.Config) {}, func(job *ringo.Job) error {
		c, err := bindings.OpenTables(job, oneTable)
		if err == nil {
			err = collective.Barrier(job.Group()) // both have joined
		}
		if err != nil || job.Rank() == 1 {
			return err
		}
		defer c.Close()
		<-job.Context().Done()
		return context.Cause(job.Context())
	})
	want := "it ended early: its client of the parameter servers has not left, so they wait for it: call Leave of each client at the end"
	if errs[1] == nil || errs[1].Error() != want {
		t.Errorf("rank 1: %v", errs[1])
	}
	if errs[0] == nil || !strings.HasPrefix(errs[0].Error(), "rank 1 is lost: it failed: "+want) {
		t.Errorf("rank 0: %v", errs[0])
	}
}

// TestOpenTablesChecksSettings rejects a rank with another consistency mode than the server's, and
// an error names both.
func TestOpenTablesChecksSettings(t *testing.T) {
	errs := endsAtServer(t, func(*server.Config) {}, func(job *ringo.Job) error {
		text := func(sync string) string {
			return strings.TrimSuffix(oneTable, "}") + `, "settings": {"sync": "` + sync + `"}}`
		}
		if job.Rank() == 1 {
			_, err := bindings.OpenTables(job, text("async"))
			return err
		}
		c, err := bindings.OpenTables(job, text("bsp"))
		if err != nil {
			return err
		}
		defer c.Close()
		<-job.Context().Done()
		return nil
	})
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "async") || !strings.Contains(errs[1].Error(), "bsp") {
		t.Errorf("rank 1: %v", errs[1])
	}
}

// Rows are pulled, moved by the mean of the ranks' pushes, and peeked at without being created.
func TestTables(t *testing.T) {
	withServer(t, func(job *ringo.Job) error {
		c, err := bindings.OpenTables(job, oneTable)
		if err != nil {
			return err
		}
		keys := []uint64{7, 1 << 60, 7} // a repeated key
		for step := uint64(1); step <= 3; step++ {
			rows := make([]float32, 6)
			pull, err := c.Pull(0, false, step, keys, rows)
			if err == nil {
				err = pull.Wait()
			}
			if err != nil {
				return err
			}
			one := 1 - 0.5*1.5*float32(step-1) // half of the mean of 1 and 2, per earlier step
			two := 1 - 2*(1-one)               // the repeated key is moved by both
			if want := []float32{two, two, one, one, two, two}; !slices.Equal(rows, want) {
				return fmt.Errorf("step %d: rows %v, want %v", step, rows, want)
			}
			g := float32(job.Rank() + 1)
			if err := errors.Join(c.Push(0, step, keys, []float32{g, g, g, g, g, g}), c.Clock(step, -1)); err != nil {
				return err
			}
		}
		if err := refuses(c); err != nil {
			return err
		}
		return errors.Join(c.Flush(), c.Close(), c.Close())
	})
}

func refuses(c *bindings.Tables) error {
	_, other := c.Pull(1, false, 1, nil, nil)
	_, zero := c.Pull(0, true, 0, nil, nil)
	_, older := c.Save(3, 4)
	for text, err := range map[string]error{
		"table 1 is none of 1": other, "counted from 1": zero, "oldest step": older,
		"3 values of 1 rows": c.Push(0, 1, []uint64{1}, make([]float32, 3)),
	} {
		if misuse := (*bindings.Misuse)(nil); !errors.As(err, &misuse) || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("%q: %w", text, err)
		}
	}
	return nil
}

// Invalid schemas and jobs without servers are refused.
func TestTablesRefuse(t *testing.T) {
	err := ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
		for text, want := range map[string]string{
			"":                     "the schema of the tables: EOF",
			`{"sparse": 3}`:        "the schema of the tables: json: ",
			`{"dense": [], "x":1}`: "unknown field",
			oneTable + "{}":        "text after the end of the JSON",
			"{}":                   "no table and no array",
			oneTable:               "no servers of tables",
		} {
			_, err := bindings.OpenTables(job, text)
			if misuse := (*bindings.Misuse)(nil); !errors.As(err, &misuse) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// step pulls a key's row on both ranks, pushes ones, ends the step, and returns the pulled row.
func step(c *bindings.Tables, number, key uint64) ([]float32, error) {
	row := make([]float32, 2)
	pull, err := c.Pull(0, false, number, []uint64{key}, row)
	if err == nil {
		err = pull.Wait()
	}
	if err != nil {
		return nil, err
	}
	return row, errors.Join(c.Push(0, number, []uint64{key}, []float32{1, 1}), c.Clock(number, -1))
}

// Another job resumes from the servers' checkpoint.
func TestTablesSave(t *testing.T) {
	dir := t.TempDir()
	durable := func(c *server.Config) { c.Durability, c.Dir = engine.Checkpoint, dir }
	var kept [2][]uint64
	withServerOf(t, durable, func(job *ringo.Job) error {
		c, err := bindings.OpenTables(job, oneTable)
		if err != nil {
			return err
		}
		for number := uint64(1); number <= 2; number++ {
			if _, err := step(c, number, 5); err != nil {
				return err
			}
		}
		kept[job.Rank()], err = c.Save(2, 1)
		return errors.Join(err, c.Close())
	})
	if len(kept[0]) != 1 || !slices.Equal(kept[0], kept[1]) {
		t.Errorf("the checkpoint is %v to rank 0, and %v to rank 1", kept[0], kept[1])
	}
	withServerOf(t, func(c *server.Config) { c.From = dir }, func(job *ringo.Job) error {
		c, err := bindings.OpenTables(job, oneTable)
		if err != nil {
			return err
		}
		row, err := step(c, 1, 5)
		if want := []float32{0, 0}; err == nil && !slices.Equal(row, want) { // 1, less half of a mean of 1, twice
			err = fmt.Errorf("the row is %v, want %v", row, want)
		}
		return errors.Join(err, c.Close())
	})
}

// A peeked key has no row: the next pull starts with the initial weights, and nothing is counted.
func TestTablesPeek(t *testing.T) {
	withServer(t, func(job *ringo.Job) error {
		c, err := bindings.OpenTables(job, oneTable)
		if err != nil {
			return err
		}
		if _, err := step(c, 1, 3); err != nil {
			return err
		}
		rows := make([]float32, 4)
		pull, err := c.Pull(0, true, 2, []uint64{3, 4}, rows)
		if err == nil {
			err = pull.Wait()
		}
		if want := []float32{0.5, 0.5, 1, 1}; err == nil && !slices.Equal(rows, want) {
			err = fmt.Errorf("rows %v, want %v", rows, want)
		}
		return errors.Join(err, c.Close())
	})
}

// A clock's rate applies from the next step on.
func TestTablesRate(t *testing.T) {
	withServer(t, func(job *ringo.Job) error {
		c, err := bindings.OpenTables(job, oneTable)
		if err != nil {
			return err
		}
		if _, err := step(c, 1, 9); err != nil {
			return err
		}
		if _, err := step(c, 2, 9); err != nil {
			return err
		}
		if err := c.Clock(3, 0.25); err != nil { // step without a push
			return err
		}
		for number, want := range []float32{0, -0.25, -0.5} {
			row, err := step(c, uint64(4+number), 9)
			if err == nil && row[0] != want {
				err = fmt.Errorf("step %d: %v, want %v", 4+number, row, want)
			}
			if err != nil {
				return err
			}
		}
		return c.Close()
	})
}
