package model

import "github.com/ringo-ml/ringo/nn"

// CrossEntropy is the mean of -log softmax(logits)[label] over the rows of the first output, [n, classes], of which each has a
// label.
func CrossEntropy(t *nn.Tape, b Batch, out Outputs) Loss {
	mean, correct := t.SoftmaxCrossEntropy(out[0], b.Labels)
	return Loss{Mean: mean, Terms: len(b.Labels), Correct: correct}
}

// Squared is the mean over all targets of the squared difference from the first output, which has a value for each of them.
func Squared(t *nn.Tape, b Batch, out Outputs) Loss {
	return Loss{Mean: t.MeanSquaredErrorTo(out[0], b.Targets), Terms: b.N}
}
