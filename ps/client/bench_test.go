package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/ps/schema"
)

// tabled is an engine with one table in memory.
type tabled struct {
	*quiet
	table *rows.Table
}

func (e *tabled) PushRows(_ int, seq uint64, _ int, _ uint64, keys []uint64, grads []float32) (wal.LSN, error) {
	return wal.LSN{Number: seq}, e.table.PushOnce(0, seq, keys, grads, 1, &rows.Once{Create: true})
}

func (e *tabled) PeekRows(_ int, keys []uint64, dst []float32) error {
	_, err := e.table.Peek(keys, dst, nil)
	return err
}

func (e *tabled) PullRows(_ rows.PullID, _ int, keys []uint64, dst []float32) error {
	return e.table.Pull(keys, dst)
}

const benchRows = 1 << 20

// BenchmarkRows pulls and pushes rows of width 16, uniform keys of a million, over
// loopback: one server, one trainer with one session, some batches under way.
func BenchmarkRows(b *testing.B) {
	sc := schema.Schema{Sparse: []schema.Sparse{{Name: "t", Dim: 16, Rule: schema.Rule{Name: "adagrad", LR: 0.05}}}}
	rule, err := sc.Sparse[0].Rule.Rows()
	must(b, err)
	table, err := rows.New(rows.Config{Name: "t", Dim: 16, Rule: rule, MaxRows: benchRows})
	must(b, err)
	defer table.Close()
	e := &tabled{&quiet{Engine: fake.New(fake.Config{Trainers: 1}, sc)}, table}
	l := overTCP(b, sc, []service.Engine{e}, nil).Session(0)
	for _, size := range []int{1024, 4096, 16384} {
		batches := benchBatches(size)
		for _, op := range []string{"pull", "push", "both"} {
			b.Run(fmt.Sprintf("batch=%d/%s", size, op), func(b *testing.B) { benchRowsOf(b, l, batches, op) })
		}
	}
}

// benchBatches are batches of different keys, each key of the million about as often.
func benchBatches(size int) (out [][]uint64) {
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, benchRows)
	for i := range keys {
		keys[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for len(keys) >= size {
		out, keys = append(out, keys[:size]), keys[size:]
	}
	return out
}

func benchRowsOf(b *testing.B, l *Session, batches [][]uint64, op string) {
	const ahead = 3
	size := len(batches[0])
	grads, dst := make([]float32, 16*size), [ahead][]float32{}
	for i := range grads {
		grads[i] = 1e-3
	}
	for i := range dst {
		dst[i] = make([]float32, 16*size)
	}
	var way []*Pull
	for i := 0; b.Loop(); i++ {
		keys := batches[i%len(batches)]
		if op != "push" {
			if len(way) == ahead {
				must(b, way[0].Wait())
				way = append(way[:0], way[1:]...)
			}
			p, err := l.PullRows(0, 1, keys, dst[i%ahead])
			must(b, err)
			way = append(way, p)
		}
		if op != "pull" {
			must(b, l.PushRows(0, 1, keys, grads))
		}
	}
	for _, p := range way {
		must(b, p.Wait())
	}
	must(b, l.c.Flush(context.Background()))
	b.ReportMetric(float64(b.N)*float64(size)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
