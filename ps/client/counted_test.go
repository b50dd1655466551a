package client

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/ps/schema"
)

// What a table's rule counts arrives as it was pushed, however its gradients travel, over any number of
// servers, in messages of any length; that of a key that comes twice adds up.
func TestCountsAreExact(t *testing.T) {
	const dim, width = 3, 5
	sc := schema.Schema{Sparse: []schema.Sparse{{Name: "plain", Dim: 4, Rule: sgd}, {Name: "clicks", Dim: dim, Rule: schema.Rule{Name: "click", LR: 1}}}}
	for servers := 1; servers <= 3; servers++ {
		for code := message.FP32; code.Valid(); code++ {
			var fakes []*fake.Engine
			var engines []service.Engine
			for i := range servers {
				f := fake.New(fake.Config{Trainers: 1, Servers: servers, Index: i}, sc)
				f.Keep = true
				fakes, engines = append(fakes, f), append(engines, f)
			}
			c := overTCP(t, sc, engines, func(cfg *Config) { cfg.Push, cfg.Merge = code, true })
			r := rand.New(rand.NewPCG(uint64(servers), uint64(code)))
			want := map[uint64][2]float32{}
			const n = 700
			keys, grads := make([]uint64, n), make([]float32, n*width)
			for i := range keys {
				keys[i] = r.Uint64N(300)
				for j := range dim {
					grads[i*width+j] = r.Float32() - 0.5
				}
				show := float32(r.IntN(10_001)) // more than half floats tell apart
				click := float32(r.IntN(int(show) + 1))
				grads[i*width+dim], grads[i*width+dim+1] = show, click
				was := want[keys[i]]
				want[keys[i]] = [2]float32{was[0] + show, was[1] + click}
			}
			must(t, c.Session(0).PushRows(1, 1, keys, grads))
			must(t, c.Flush(context.Background()))
			for i, f := range fakes {
				f.Last(0) // whose lock orders what follows after the pushes
				for _, p := range f.Pushes {
					if len(p.Grads) != len(p.Keys)*width {
						t.Fatalf("server %d has %d values for %d keys", i, len(p.Grads), len(p.Keys))
					}
					for k, key := range p.Keys {
						if got := [2]float32(p.Grads[k*width+dim:]); got != want[key] {
							t.Errorf("%d servers, %v: key %d counts %v, want %v", servers, code, key, got, want[key])
						}
						delete(want, key)
					}
				}
			}
			if len(want) > 0 {
				t.Errorf("%d servers, %v: %d keys have not come", servers, code, len(want))
			}
			says(t, c.Session(0).PushRows(1, 1, keys[:1], grads[:dim]), `table "clicks": 3 values for 1 rows of 5`)
			must(t, c.Leave(context.Background()))
		}
	}
}
