package aggregate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// Servers give the bits that an exchange over the group gives, where that adds in
// the order of ranks: dense codes in blocks, float16 and bfloat16 by the direct
// algorithm, which rounds once too, and entries by AllGather and Split.
func TestEqualsExchangeOver(t *testing.T) {
	leakcheck.Check(t)
	for _, trainers := range []int{2, 3, 4} {
		for _, algorithm := range []string{exchange.AllGather, exchange.Split} {
			meshes := mem.NewShared(trainers+2, 1<<16)
			for r, err := range onMeshes(t, meshes, Config{Trainers: trainers, SegmentBytes: minSegment}, func(c *Client) error {
				g, err := collective.New(c.mesh, collective.Config{Ranks: []int{0, 1, 2, 3}[:trainers]})
				if err != nil {
					return err
				}
				defer g.Close()
				over, err := exchange.NewGroupReducer(g, exchange.Config{Algorithm: algorithm})
				if err != nil {
					return err
				}
				defer over.Close()
				for turn, n := range []int{1, 300, 5003} {
					for _, q := range Codes() {
						for _, share := range []float64{0, 0.05, 0.9} { // 0: dense
							x := decoded(t, q, gradient(n, c.rank(), turn))
							ours, theirs := &exchange.Request{X: x, Code: q}, &exchange.Request{X: slices.Clone(x), Code: q}
							if share > 0 {
								ours.Sparse = entries(t, n, c.rank(), turn, share, q)
								theirs.Sparse = entries(t, n, c.rank(), turn, share, q)
							}
							c.Start(ours)
							over.Start(theirs)
							if _, err := over.Wait(theirs); err != nil {
								return err
							}
							if _, err := c.Wait(ours); err != nil {
								return err
							}
							what := fmt.Sprintf("%s, %v of %d, %s", q.Name(), share, n, theirs.Sent.Algorithm)
							if err := equal(what, ours.X, theirs.X); err != nil {
								return err
							}
						}
					}
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("%s of %d: %v", role(r, trainers), trainers, err)
				}
			}
		}
	}
}

// equal compares values; the two zeros are equal.
func equal(what string, got, want []float32) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: value %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

var _ exchange.Reducer = (*Client)(nil)
