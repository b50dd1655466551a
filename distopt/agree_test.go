package distopt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/optim"
)

// TestRanksWithOtherModelsNameTheParameter names the first parameter that one rank has otherwise than rank 0, on all ranks.
func TestRanksWithOtherModelsNameTheParameter(t *testing.T) {
	layers := func(names string, lens ...int) (out []bucket.Param, total int) {
		for i, name := range strings.Fields(names) {
			name, shape, _ := strings.Cut(name, ":")
			l := bucket.Param{Name: name, Offset: total, Len: lens[i]}
			if shape != "" {
				l.Shape = make([]int, 2)
				fmt.Sscanf(shape, "%dx%d", &l.Shape[0], &l.Shape[1])
			}
			out, total = append(out, l), total+lens[i]
		}
		return out, total
	}
	for _, c := range []struct {
		names string
		lens  []int
		want  string
	}{
		{"out.weight:8x10 hidden.weight", []int{80, 16}, "rank 1 has another model than rank 0: parameter 0 is out.weight of 8×10 values there, and out.weight of 8×8 values on rank 0"},
		{"out.weight:4x16 hidden.weight", []int{64, 16}, "rank 1 has another model than rank 0: parameter 0 is out.weight of 4×16 values there, and out.weight of 8×8 values on rank 0: all ranks must build the same one"},
		{"out.weight:8x8 other.weight", []int{64, 16}, "parameter 1 is other.weight of 16 values there, and hidden.weight of 16 values on rank 0"},
		{"out.weight:8x8", []int{64}, "parameter 1 is none there, and hidden.weight of 16 values on rank 0"},
		{"out.weight:8x8 hidden.weight bias", []int{64, 16, 16}, "parameter 2 is bias of 16 values there, and none on rank 0"},
	} {
		errs := ranks(t, 3, func(g *collective.Group) error {
			own, n := layers("out.weight:8x8 hidden.weight", 64, 16)
			if g.Rank() == 1 {
				own, n = layers(c.names, c.lens...)
			}
			_, err := New(g, optim.NewAdagrad(0.1), own, make([]float32, n), make([]float32, n), nil, Config{})
			return err
		})
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, rank %d: %v", c.names, rank, err)
			}
		}
	}
}
