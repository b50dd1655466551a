package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/quantity"
)

const (
	// overfitEpochs is the number of consecutive epochs with a worse evaluation loss than the best
	// epoch's after which a remark follows.
	overfitEpochs = 3
	// overfitRise is the relative difference to the best epoch's loss at which a loss is worse.
	overfitRise = 0.01
)

// overfit follows evaluation losses, for a remark about a model that improves on the training
// samples and gets worse on the evaluation samples.
type overfit struct {
	// BestEpoch is the epoch of the lowest evaluation loss, BestEval; TrainThen: its training loss.
	BestEpoch int     `json:"best_eval_epoch,omitempty"`
	BestEval  float64 `json:"best_eval_loss,omitempty"`
	TrainThen float64 `json:"best_eval_train_loss,omitempty"`
	// Worse is the number of consecutive epochs after BestEpoch with a worse evaluation loss and a
	// lower training loss.
	Worse int `json:"worse_evals,omitempty"`
}

// follow notes an epoch's losses, and returns the text of a remark; "" without one.
func (o *overfit) follow(epoch int, training, evaluation float64) string {
	switch {
	case o.BestEpoch == 0 || evaluation < o.BestEval:
		*o = overfit{BestEpoch: epoch, BestEval: evaluation, TrainThen: training}
	case evaluation > (1+overfitRise)*o.BestEval && training < o.TrainThen:
		o.Worse++
	default:
		o.Worse = 0
	}
	if o.Worse != overfitEpochs {
		return ""
	}
	return fmt.Sprintf("the evaluation loss is worse in %d epochs in succession (now %s, in epoch %d %s) while the training loss improves (now %s, then %s): the best epoch is %d; set training.monitor=loss to keep its checkpoint",
		o.Worse, quantity.FloatDigits(evaluation, 4), o.BestEpoch, quantity.FloatDigits(o.BestEval, 4), quantity.FloatDigits(training, 4), quantity.FloatDigits(o.TrainThen, 4), o.BestEpoch)
}
