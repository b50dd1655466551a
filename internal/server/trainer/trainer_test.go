package trainer

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/ps/schema"
)

// What servers of parameters cannot take is refused before anything is sent, and stays the
// fault of all that follows.
func TestWholeGradientsOnly(t *testing.T) {
	tr := &Trainer{step: 3}
	tr.Start(&exchange.Request{X: make([]float32, 4), Lo: 32, Sparse: &compress.Sparse{}})
	tr.Start(&exchange.Request{X: make([]float32, 4)})
	if _, err := tr.Wait(nil); err == nil || !strings.Contains(err.Error(), "step 3: values at 32 are selected or coded") {
		t.Errorf("got %v", err)
	}
	rule := schema.Rule{Name: "sgd", LR: 1}
	for _, s := range []schema.Schema{
		{},
		{Dense: []schema.Dense{{Name: "a", Len: 5, Rule: rule}}},
		{Dense: []schema.Dense{{Name: "a", Len: 4, Rule: rule}}, Sparse: make([]schema.Sparse, 2)},
	} {
		if _, err := New(Config{Schema: s, Values: make([]float32, 4)}); err == nil || !strings.Contains(err.Error(), "want one array") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
