package model

import "github.com/ringo-ml/ringo/nn"

// CrossEntropy is the mean of -log softmax(logits)[label] over the rows of the first output, [n,
// classes], with a label for each row.
func CrossEntropy(t *nn.Tape, b Batch, out Outputs) Loss {
	mean, correct := t.SoftmaxCrossEntropy(out[0], b.Labels)
	return Loss{Mean: mean, Terms: len(b.Labels), Correct: correct}
}

// CrossEntropyWith returns CrossEntropy with smoothed targets, weights of classes or ignored
// labels: see nn.CrossEntropy. Terms are the samples that count.
func CrossEntropyWith(c nn.CrossEntropy) func(t *nn.Tape, b Batch, out Outputs) Loss {
	return func(t *nn.Tape, b Batch, out Outputs) Loss {
		mean, correct, counted := t.CrossEntropy(out[0], b.Labels, c)
		return Loss{Mean: mean, Terms: counted, Correct: correct}
	}
}

// BinaryCrossEntropy is the mean of -z·log p - (1-z)·log(1-p) over the samples, with the label z, 0
// or 1, and p = 1/(1+exp(-x)) for the first output x, [n, 1]. It uses x alone, to avoid overflow.
func BinaryCrossEntropy(t *nn.Tape, b Batch, out Outputs) Loss {
	l := Loss{Mean: t.BinaryCrossEntropyTo(out[0], b.Labels), Terms: len(b.Labels)}
	for i, x := range out[0].Data {
		if (x > 0) == (b.Labels[i] == 1) {
			l.Correct++
		}
	}
	return l
}

// Squared is the mean over all targets of the squared difference from the first output, which has a
// value for each target.
func Squared(t *nn.Tape, b Batch, out Outputs) Loss {
	return Loss{Mean: t.MeanSquaredErrorTo(out[0], b.Targets), Terms: b.N}
}

// MeanLoss is the mean of the losses of the batch's samples, [n] or [n, ...], such as a result of
// nn.Tape.Map. Its terms are the n samples.
func MeanLoss(t *nn.Tape, losses *nn.Tensor) Loss {
	return Loss{Mean: t.Mean(losses), Terms: losses.Shape[0]}
}
