package subgroup

import (
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// TestMakeForgetsClosedGroups: a set retains open groups alone, however many a job makes.
func TestMakeForgetsClosedGroups(t *testing.T) {
	var ranks sync.WaitGroup
	for rank, mesh := range mem.New(2) {
		ranks.Go(func() {
			s := New(mesh, rank, 2, collective.Config{})
			defer mesh.Close()
			defer s.Close()
			retained, err := s.Make([]int{1, 0})
			if err != nil {
				t.Error(err)
				return
			}
			for range 50 {
				g, err := s.Make([]int{0, 1})
				if err != nil {
					t.Error(err)
					return
				}
				if len(s.open) != 2 {
					t.Errorf("the set retains %d groups, want 2", len(s.open))
				}
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			}
			x := []float32{1}
			if err := collective.AllReduce(retained, x, collective.Sum); err != nil || x[0] != 2 {
				t.Error(x, err)
			}
		})
	}
	ranks.Wait()
}
