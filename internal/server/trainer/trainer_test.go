package trainer

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/ps/schema"
)

// TestNewRejectsSchemas checks the shapes that New needs.
func TestNewRejectsSchemas(t *testing.T) {
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
	good := Config{Schema: schema.Schema{Dense: []schema.Dense{{Name: "a", Len: 4, Rule: rule}}}, Values: make([]float32, 4), Batches: 2, GeoSteps: 1, Copies: 1}
	if _, err := New(good); err == nil || !strings.Contains(err.Error(), "2 batches in a step, copies exchanged every 1") {
		t.Errorf("batches of copies: %v", err)
	}
}
