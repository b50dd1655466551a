package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// workerWord, as the first argument, makes this program a rank of a job whose fault is known. Behind it stand a boxCase as JSON, and, of one by
// hand, the rank, the address where ranks meet, and the folder for what it records.
const workerWord = "worker"

// worker is such a rank.
func worker(args []string) error {
	var c boxCase
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	cfg := ringo.Config{Times: cluster.Times{DeadAfter: deadAfter, Join: joinTimeout}, Collective: collective.Config{Timeout: boxWait}}
	if c.ByHand {
		rank, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		cfg.Size, cfg.Rank, cfg.Rendezvous, cfg.BlackBox, cfg.Transport = c.Ranks, rank, args[2], args[3], c.Way
	}
	return ringo.Run(context.Background(), cfg, func(job *ringo.Job) error {
		if c.tables() {
			return c.ask(job)
		}
		return c.exchange(job)
	})
}

// exchange exchanges buckets, step after step, until the fault.
func (c *boxCase) exchange(job *ringo.Job) error {
	reducer := job.Reducer()
	if reducer == nil {
		over, err := exchange.NewGroupReducer(job.Group(), exchange.Config{})
		if err != nil {
			return err
		}
		defer over.Close()
		reducer = over
	}
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	ops := make([]exchange.Request, len(c.Buckets))
	for b := range ops {
		layer := bucketLayer(b)
		ops[b].Bucket = exchange.BucketInfo{Number: b, First: layer, Last: layer}
		ops[b].Bucket.Label = job.Recorder().Name(ops[b].Bucket.String())
	}
	for step := 0; ; step++ {
		job.Recorder().BeginStep(int64(step))
		for b := range ops {
			n := c.Buckets[b]
			if job.Rank() == c.Victim && step == c.Step && b == c.Bucket {
				if c.Fault == mismatchFault {
					n++
				}
				c.strike()
			}
			if len(ops[b].X) != n {
				ops[b].X = make([]float32, n)
			}
			if c.Sparse {
				ops[b].Sparse = &compress.Sparse{Len: n, Index: []int32{int32(job.Rank())}, Value: []float32{1}}
			}
			reducer.Start(&ops[b])
			if _, err := reducer.Wait(&ops[b]); err != nil {
				return err
			}
			ended := binary.LittleEndian.AppendUint64(nil, uint64(step*len(ops)+b+1))
			if _, err := log.WriteAt(ended, int64(8*job.Rank())); err != nil { // which outlives a kill
				return err
			}
		}
	}
}

// ask pulls and pushes rows, step after step, until the fault.
func (c *boxCase) ask(job *ringo.Job) error {
	const dim = 4
	rows := schema.Sparse{Name: boxTable, Dim: dim, Rule: schema.Rule{Name: "sgd", LR: 0.1}}
	cfg := client.Config{Schema: schema.Schema{Sparse: []schema.Sparse{rows}}, Reconnect: time.Second, Timeout: boxTableWait}
	if c.Way == "geo" {
		cfg.Settings = setting.Values{"sync": "geo"}
	}
	servers, err := job.DialParameterServers(cfg)
	if err != nil {
		return err
	}
	defer servers.Close()
	session, keys := servers.Session(0), make([]uint64, 64)
	for i := range keys {
		keys[i] = uint64(i)
	}
	values := make([]float32, dim*len(keys))
	for step := 1; ; step++ {
		job.Recorder().BeginStep(int64(step - 1))
		p, err := session.PullRows(0, uint64(step), keys, values)
		if err == nil {
			err = p.Wait()
		}
		if err == nil && job.Rank() == c.Victim && step == c.Step {
			c.strike()
		}
		if err == nil {
			err = session.PushRows(0, uint64(step), keys, values)
		}
		if err == nil {
			err = session.Clock(uint64(step), 0.1)
		}
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// strike is the fault. After a mismatch, and after a cut, the rank goes on.
func (c *boxCase) strike() {
	switch c.Fault {
	case killFault:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case stopFault:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {}
	case hangFault:
		select {}
	case cutFault:
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
				_ = syscall.Shutdown(fd, syscall.SHUT_RDWR) // of what is no socket it does nothing
			}
		}
	}
}

// bucketLayer is the name of a bucket's layer.
func bucketLayer(b int) string { return fmt.Sprintf("layer%d.weight", b) }
