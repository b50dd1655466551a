// Command keys trains a model by keys through a server's memory and SSD, kills the server on the way, and counts whether anything is lost:
//
//	go run ./bench/keys -keys 10000000 -memory 256MiB -budget 1GiB -kills 5 -dir /tmp/keys
//
// Each key is named once, and a quarter as many times again keys are drawn by chance. The model's loss is minus the sum of the rows that
// its samples name, and descent adds exactly 1 to each value of a row whenever a sample names its key: whatever is lost or done twice,
// in a log, below memory or on the way, shows in the row. In the end what the server has saved is compared with how often each key was
// named, all values of all rows.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

// options are what a person says. All of them are flags; the server's process is given those that it needs, and its ticket on its
// standard input.
type options struct {
	Keys             int
	Memory           int64
	Budget           int64
	Kills            int
	Dir              string
	Batch            int
	Seed             uint64
	SaveEvery        time.Duration
	Address, Meeting string
}

// result is what is told, one line of JSON.
type result struct {
	Keys     int     `json:"keys"`    // different ones
	Named    int     `json:"named"`   // with those that are named again
	Rows     int64   `json:"rows"`    // that the server has saved
	Wrong    int64   `json:"wrong"`   // rows that are missing, or have another value than they must have
	Kills    int     `json:"kills"`   // of the server
	TrainS   float64 `json:"train_s"` // restarts included
	AwayS    float64 `json:"away_s"`  // from each kill until the next step was done, in all
	KeysPerS float64 `json:"keys_per_s"`
	Memory   int64   `json:"memory_bytes"` // for rows
	Budget   int64   `json:"budget_bytes"` // of the server
	PeakRSS  int64   `json:"server_peak_rss_bytes"`
	DiskPeak int64   `json:"disk_peak_bytes"` // of the server's folder, looked at now and then
}

func main() {
	var o options
	memory, budget, serving := setting.Bytes(&o.Memory), setting.Bytes(&o.Budget), false
	o.Memory, o.Budget = 256<<20, 1<<30
	flag.IntVar(&o.Keys, "keys", 1_000_000, "different `keys`")
	flag.Func("memory", "most memory for rows, such as 256MiB", memory.Set)
	flag.Func("budget", "most memory of the server's process: more is a fault", budget.Set)
	flag.IntVar(&o.Kills, "kills", 5, "how often the server is killed")
	flag.StringVar(&o.Dir, "dir", "", "`folder` on an SSD, which must not exist")
	flag.IntVar(&o.Batch, "batch", 8192, "samples of a batch, a power of 2")
	flag.Uint64Var(&o.Seed, "seed", 1, "what keys are drawn from")
	flag.StringVar(&o.Meeting, "meeting", "127.0.0.1:17346", "`HOST:PORT` where the only rank listens")
	flag.DurationVar(&o.SaveEvery, "save-every", time.Minute, "time between the server's checkpoints, which bound what it replays")
	flag.BoolVar(&serving, "serve", false, "be the server of another such process")
	flag.StringVar(&o.Address, "address", "127.0.0.1:17345", "`HOST:PORT` where the server listens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if serving {
		err = serve(ctx, o)
	} else {
		err = measure(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

// measure trains, and compares what the server has saved with what it must have. It returns an error where anything is lost or done twice,
// and where the server took more memory than its budget; the line of JSON is written in any case, unless the run itself has failed.
// The folder stays, to be looked at with ringo ps.
func measure(ctx context.Context, o options) error {
	if o.Keys < 1000 || o.Batch < 1 || o.Batch&(o.Batch-1) != 0 || o.Kills < 0 || o.Dir == "" {
		return errors.New("want at least 1000 keys, batches of a power of 2, kills from 0 on, and a folder")
	}
	if err := os.Mkdir(o.Dir, 0o777); err != nil {
		return err
	}
	k := &keeper{o: o, ticket: transport.NewTicket()}
	if err := k.start(); err != nil {
		return err
	}
	k.watch()
	all := newSamples(o)
	r := result{Keys: o.Keys, Named: all.n * slots, Memory: o.Memory, Budget: o.Budget}
	if err := r.train(ctx, o, k, all); err != nil {
		_ = k.process.Process.Kill() // it may wait for a trainer that does not come back
		return errors.Join(err, k.end())
	}
	if err := k.end(); err != nil {
		return fmt.Errorf("the server: %w", err)
	}
	r.PeakRSS, r.DiskPeak = k.peak, k.disk
	if err := r.compare(ctx, o, all); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	fmt.Fprintln(os.Stdout, string(text))
	switch {
	case err != nil:
		return err
	case r.Wrong > 0 || r.Rows != int64(o.Keys):
		return fmt.Errorf("of %d keys %d have a row, and %d rows are wrong", o.Keys, r.Rows, r.Wrong)
	case r.PeakRSS > r.Budget:
		return fmt.Errorf("the server had %d bytes of memory, more than the budget of %d", r.PeakRSS, r.Budget)
	}
	return nil
}
