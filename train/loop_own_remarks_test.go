package train

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// idling is a line with a parameter that nothing uses.
func idling() model.Spec {
	return model.Spec{Name: "idling", Input: []int{1}, Targets: 1, Build: func(ps *nn.Params, _ model.Options) model.Model {
		fc := ps.Dense("line", 1, 1)
		ps.New("idle", nn.Zeros, 3)
		return model.Model{Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
			return model.Outputs{t.Dense(b.Values, fc, nn.Identity)}
		}, Loss: func(t *nn.Tape, b model.Batch, out model.Outputs) model.Loss {
			return model.MeanLoss(t, t.Map("squares", out[0], func(i int, x float32) (loss, slope float32) {
				d := x - b.Targets[i]
				return d * d, 2 * d
			}))
		}}
	}}
}

// A Loop remarks on a parameter without a gradient once, and on an evaluation that is not finite; a
// batch with NaN is an error with its row.
func TestLoopRemarks(t *testing.T) {
	nan := float32(math.NaN())
	sample := func(targets ...float32) model.Batch {
		b := model.Batch{N: len(targets), Values: nn.NewTensor(len(targets), 1), Targets: targets}
		copy(b.Values.Data, targets)
		return b
	}
	for np := 1; np <= 2; np++ {
		err := ringo.Local(t.Context(), np, ringo.Config{}, func(job *ringo.Job) error {
			l, err := NewLoop(job.Context(), job, idling(), Config{LR: 0.01, Batch: 2})
			if err != nil {
				return err
			}
			if m := l.Remarks(); len(m) != 1 || !strings.Contains(m[0].Text, "1 parameter without a gradient") || !strings.Contains(m[0].Text, ": idle:") {
				t.Errorf("%d ranks: remarks %+v", np, m)
			}
			pass, err := l.TrainOneBatch(sample(1, 2), "", 0)
			if err != nil {
				return errors.Join(err, l.Close())
			}
			if pass.Loss.Terms != 2 {
				t.Errorf("%d terms, want 2", pass.Loss.Terms)
			}
			eval, err := data.FromBatch(data.Shape{Values: []int{1}, Targets: 1}, data.Batch{N: 2, Values: []float32{1, nan}, Targets: []float32{1, 2}})
			if err != nil {
				return errors.Join(err, l.Close())
			}
			if _, err := l.Evaluate(&data.Dataset{Name: "mine", Eval: eval}); err != nil {
				return errors.Join(err, l.Close())
			}
			if m := l.Remarks(); len(m) != 1 || !strings.Contains(m[0].Text, "the loss of the evaluation is NaN") {
				t.Errorf("%d ranks: remarks %+v", np, m)
			}
			_, err = l.TrainOneBatch(sample(1, nan), "", 0)
			if err == nil || np == 1 && !strings.Contains(err.Error(), "row 1 of the batch (counted from 0) has NaN") {
				t.Errorf("%d ranks: got %v", np, err)
			}
			return l.Close()
		})
		if err != nil {
			t.Errorf("%d ranks: %v", np, err)
		}
	}
}
