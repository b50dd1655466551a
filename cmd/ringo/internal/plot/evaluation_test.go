package plot

import (
	"fmt"
	"reflect"
	"testing"
)

// TestEvaluationDrawsRecords: a confusion matrix has all samples, rows of numbers begin with the
// largest, and a reliability curve has a diagonal; damaged and other records have no drawing.
func TestEvaluationDrawsRecords(t *testing.T) {
	heat, lines := Evaluation([]byte(`{"event":"evaluation","classes":{"per_class":[{"class":"no","support":7},{"class":"yes","support":3}],"confusion":[[0,0,6],[0,1,1],[1,1,3]]}}`))
	if want := [][]int64{{6, 1}, {0, 3}}; lines != nil || heat == nil || !reflect.DeepEqual(heat.Counts, want) || !reflect.DeepEqual(heat.Rows, []string{"no", "yes"}) {
		t.Errorf("classes: %+v, %v", heat, lines)
	}
	heat, _ = Evaluation([]byte(`{"numbers":{"unit":"price","joint":{"min":10,"width":2,"counts":[[5,1],[0,4]]}}}`))
	if heat == nil || !reflect.DeepEqual(heat.Counts, [][]int64{{0, 4}, {5, 1}}) || !reflect.DeepEqual(heat.Rows, []string{"13", "11"}) || heat.ColumnsAre != "predicted price" {
		t.Errorf("numbers: %+v", heat)
	}
	_, lines = Evaluation([]byte(`{"clicks":{"reliability":[{"predicted":0.1,"observed":0.2},{"predicted":0.4,"observed":0.3}]}}`))
	if lines == nil || !reflect.DeepEqual(lines.X, []float64{0.1, 0.4}) || !reflect.DeepEqual(lines.Data, [][]Number{{0.2, 0.3}, {0.1, 0.4}}) {
		t.Errorf("clicks: %+v", lines)
	}
	for _, none := range []string{"", "{", `{"classes":3}`, `{"event":"summary"}`, `{"numbers":{"rmse":1}}`, `{"classes":{"per_class":[{"class":"a"}],"confusion":[[0,1,1]]}}`, `{"clicks":{"reliability":[]}}`} {
		if heat, lines := Evaluation([]byte(none)); heat != nil || lines != nil {
			t.Errorf("%s: %v, %v", none, heat, lines)
		}
	}
}

// TestConfusionOfManyClasses: the most frequent classes have rows, and other classes share one.
func TestConfusionOfManyClasses(t *testing.T) {
	text := `{"classes":{"per_class":[`
	for i := range 40 {
		text += fmt.Sprintf(`{"class":"c%d","support":%d},`, i, 100-i)
	}
	text = text[:len(text)-1] + `],"confusion":[[0,39,2],[39,38,3],[39,0,4],[1,1,5]]}}`
	heat, _ := Evaluation([]byte(text))
	if heat == nil || len(heat.Rows) != maxClasses+1 || heat.Rows[maxClasses] != "16 others" || heat.Counts[0][maxClasses] != 2 || heat.Counts[maxClasses][maxClasses] != 3 || heat.Counts[maxClasses][0] != 4 || heat.Counts[1][1] != 5 {
		t.Errorf("%+v", heat)
	}
}

// TestCardsOfColumns: a card has the column's kind, missing share, and bars of numbers or words.
func TestCardsOfColumns(t *testing.T) {
	columns := []any{
		map[string]any{"name": "age", "kind": "number", "rows": 10, "missing": map[string]int{"": 1, "NA": 1}, "histogram": map[string]any{"start": 16, "width": 8, "counts": []int{3, 5}}},
		map[string]any{"name": "id", "kind": "ignore", "why": "it numbers the rows"},
		map[string]any{"name": "city", "kind": "category", "detail": "1 word: Bern", "rows": 8, "frequent": []any{map[string]any{"word": "Bern", "rows": 8}}},
	}
	want := []Card{
		{Name: "age", Text: "number; 2 missing", Labels: []string{"16 to 24", "24 to 32"}, Counts: []int64{3, 5}, Missing: 0.2},
		{Name: "id", Text: "left out: it numbers the rows"}, {Name: "city", Text: "category: 1 word: Bern", Labels: []string{"Bern"}, Counts: []int64{8}},
	}
	if got := Cards(columns); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Cards([]any{3}); got != nil {
		t.Errorf("of a damaged record: %+v", got)
	}
}

// TestWorstDrawsSamples: a card has place, prediction, truth and loss of a sample, its first
// columns, and a picture that needs no other file.
func TestWorstDrawsSamples(t *testing.T) {
	got := Worst([]byte(`{"worst":[{"sample":3,"place":"a/1.png","prediction":"cat","truth":"dog","loss":2.5,"image":"data:image/png;base64,AA"},
		{"sample":7,"prediction":1.25,"truth":3,"loss":3.0625,"values":["x=1","y=2"],"image":"https://example.com/a.png"}]}`))
	want := []Card{{Name: "a/1.png", Text: "predicted cat, true dog; loss 2.5", Image: "data:image/png;base64,AA"}, {Name: "sample 7", Text: "predicted 1.25, true 3; loss 3.0625; x=1, y=2"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, none := range []string{"", `{"worst":3}`, `{"event":"summary"}`} {
		if got := Worst([]byte(none)); got != nil {
			t.Errorf("%s: %+v", none, got)
		}
	}
}
