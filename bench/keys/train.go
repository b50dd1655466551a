package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/train"
)

// train trains on all samples, in one epoch and by one rank in this process, while the server is killed after steps that lie equally far
// apart. That is asynchronous: pushes of the step are under way at that moment, to the server and in it, and the next batch's rows have been
// asked for. The time from each kill until the next step was done is what a lost server costs.
func (r *result) train(ctx context.Context, o options, k *keeper, all samples) error {
	steps, step := all.n/o.Batch, 0
	var killed time.Time
	kills := make(chan error, 1)
	cfg := train.Config{Batch: o.Batch, Epochs: 1, Optimizer: "sgd", LR: float64(o.Batch), Threads: 1, Servers: train.Servers{Consistency: "async"}}
	cfg.EachStep = func(train.Step) {
		if step++; !killed.IsZero() {
			r.AwayS += time.Since(killed).Seconds()
			killed = time.Time{}
		}
		if r.Kills < o.Kills && step == steps*(r.Kills+1)/(o.Kills+1) {
			r.Kills++
			killed = time.Now()
			go func() { kills <- k.kill() }()
			fmt.Fprintf(os.Stderr, "step %d of %d: the server is killed\n", step, steps)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for {
			select {
			case err := <-kills:
				if err != nil {
					cancel(err)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	start := time.Now()
	err := ringo.Run(ctx, ringo.Config{
		Size: 1, Rendezvous: o.Meeting, ParameterServers: []string{o.Address}, Transport: ringo.TransportTCP,
		Lookup: func(name string) (string, bool) {
			if name != launch.TicketVar {
				return "", false
			}
			return k.ticket.String(), true
		},
	}, func(job *ringo.Job) error {
		_, err := train.Run(ctx, job, counting(), &data.Dataset{Name: "keys", Train: all, Eval: data.Head(all, 2*o.Batch), Classes: 2, Rows: 1}, cfg)
		return err
	})
	r.TrainS = time.Since(start).Seconds()
	r.KeysPerS = float64(r.Named) / r.TrainS
	return err
}

// compare looks at all rows that the server has saved in its last checkpoint, without a server. Each value of a row must be how often its
// key was named, each key that was named must have a row, and no other may. Counting takes a byte for each key, and marking those that
// were seen another.
func (r *result) compare(ctx context.Context, o options, all samples) error {
	job, err := offline.Open(o.Dir)
	if err != nil {
		return err
	}
	want, seen := all.counts(), make([]bool, all.keys)
	err = job.Each(ctx, 0, func(keys []uint64, weights []float32) error {
		for i, key := range keys {
			rank := rankOf(key)
			if rank >= all.keys || seen[rank] {
				r.Wrong++ // a key that nobody named, or twice a row
				continue
			}
			seen[rank] = true
			for _, v := range weights[i*dim:][:dim] {
				if v != float32(want[rank]) {
					r.Wrong++
					break
				}
			}
		}
		r.Rows += int64(len(keys))
		return nil
	})
	for _, s := range seen {
		if !s {
			r.Wrong++
		}
	}
	return err
}
