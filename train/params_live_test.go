package train

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	keeper "github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/ps/client"
	kept "github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// epochHook calls a function at the end of each epoch, while all ranks wait.
type epochHook struct {
	recorder
	do func(epoch int)
}

func (h *epochHook) Epoch(e Epoch) { h.do(e.Epoch) }

// outputsOf returns the outputs of a saved model for samples of a source, and for a sample of keys
// that no table has.
func outputsOf(t *testing.T, cfg Config, src data.Source) (out []float32, err error) {
	t.Helper()
	err = ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
		p, err := NewPredictor(t.Context(), job, cfg.Model, cfg)
		if err != nil {
			return err
		}
		first, last := data.Batch{}, data.Batch{N: 1, Bags: data.Bags{Keys: []uint64{11, 12, 13}, Offsets: []int32{0, 1, 2, 3}}}
		if err := src.Fill(&first, []int32{0, 1, 2, 3, 4, 5, 6}, data.Draw{}); err != nil {
			return p.End(err)
		}
		for _, b := range []*data.Batch{&first, &last, &first} {
			o, err := p.Forward(b)
			if err != nil {
				return p.End(err)
			}
			out = append(out, o[0].Data...)
		}
		return p.End(nil)
	})
	return out, err
}

// TestLiveRowsEqualTheirCheckpoint: rows and dense parameters of running servers give the bits of
// the checkpoint that the servers save at this step, also for unknown keys, and not those of an
// earlier checkpoint.
func TestLiveRowsEqualTheirCheckpoint(t *testing.T) {
	set, keys := keyedSet(t)
	for _, mode := range []string{"bsp", "geo"} {
		np := map[string]int{"bsp": 2, "geo": 1}[mode]
		cfg := keyedConfig(keys)
		cfg.Epochs = 2
		cfg.Servers.Consistency, cfg.Servers.Start, cfg.Checkpoint = mode, 1, Checkpoint{Dir: t.TempDir()}
		recall := func(dir string, step uint64, numbers []uint64) (ServerCheckpoint, error) {
			return kept.At(dir, step, numbers)
		}
		addresses := make([]string, 2)
		live, saved := cfg, cfg
		saved.Servers = Servers{OpenServerCheckpoint: recall}
		dial := func(ticket transport.Ticket) func(context.Context, schema.Schema) (*client.Client, error) {
			return func(ctx context.Context, sc schema.Schema) (*client.Client, error) {
				return client.Dial(ctx, client.Config{Servers: addresses, Ticket: ticket, Version: ringo.Version, Schema: sc, Reader: true, Reconnect: time.Second, Timeout: time.Minute})
			}
		}
		live.Servers = Servers{Live: dial(testTicket())}
		var now, before []float32
		var errs error
		cfg.Observer = &epochHook{do: func(epoch int) {
			if epoch < 2 {
				return
			}
			var e1, e2 error
			for range 600 { // the first epoch's checkpoint is written beside the second epoch
				if before, e1 = outputsOf(t, saved, set.Eval); e1 == nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			now, e2 = outputsOf(t, live, set.Eval)
			errs = errors.Join(e1, e2)
			wrong := live
			wrong.Servers.Live = dial(transport.NewTicket())
			if _, err := outputsOf(t, wrong, set.Eval); err == nil || !strings.Contains(err.Error(), "the tickets differ") {
				t.Errorf("another ticket: %v", err)
			}
		}}
		_, _, stats := onServers(t, np, 2, cfg, set, func(c *keeper.Config) {
			c.Dir, c.Job = AttemptDir(cfg.Checkpoint.Dir, 1), JobName(1, 0)
			addresses[c.Index] = c.Listener.(*net.TCPListener).Addr().String()
		})
		if errs != nil {
			t.Fatal(errs)
		}
		after, err := outputsOf(t, saved, set.Eval)
		if err != nil {
			t.Fatal(err)
		}
		if len(now) != 15 || !slices.Equal(now, after) || slices.Equal(before, after) {
			t.Errorf("%s: live\n%v, saved\n%v, an epoch before\n%v", mode, now, after, before)
		}
		for i := range 3 {
			if rows := stats[0].Tables.Tables[i].Rows + stats[1].Tables.Tables[i].Rows; rows > int64(len(keys)) {
				t.Errorf("%s: table %d has %d rows: a reader created some", mode, i, rows)
			}
		}
		if _, err := outputsOf(t, live, set.Eval); !errors.As(err, new(*client.Error)) {
			t.Errorf("after the servers' end: %v", err)
		}
	}
}
