package model

import "github.com/ringo-ml/ringo/nn"

// CrossEntropy is the mean of -log softmax(logits)[label] over the rows of the first output, [n, classes], of which each has a
// label.
func CrossEntropy(t *nn.Tape, b Batch, out Outputs) Loss {
	mean, correct := t.SoftmaxCrossEntropy(out[0], b.Labels)
	return Loss{Mean: mean, Terms: len(b.Labels), Correct: correct}
}
