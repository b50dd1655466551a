package fake

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/ps/schema"
)

// Schema has tables "odd" and "even" of widths 3 and 16, and arrays "model" of the given length and
// "small" of 7 values, all with gradient descent at rate 1, so that integers are exact.
func Schema(values int) schema.Schema {
	rule := schema.Rule{Name: "sgd", LR: 1}
	return schema.Schema{
		Sparse: []schema.Sparse{{Name: "odd", Dim: 3, Rule: rule}, {Name: "even", Dim: 16, Rule: rule}},
		Dense:  []schema.Dense{{Name: "model", Len: values, Rule: rule}, {Name: "small", Len: 7, Rule: rule}},
	}
}

// Must ends a test with an error, if any.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Says fails a test unless the error contains all words.
func Says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want it to say %q", err, w)
		}
	}
}
