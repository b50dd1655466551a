package plot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Heat is a table of counts with shaded cells. A cell is shaded by its share of the row.
type Heat struct {
	// RowsAre and ColumnsAre are the nouns of row and column names.
	RowsAre    string    `json:"rows_are"`
	ColumnsAre string    `json:"columns_are"`
	Rows       []string  `json:"rows"`
	Columns    []string  `json:"columns"`
	Counts     [][]int64 `json:"counts"`
}

// Card describes a column of a table, with bars for its values, or a sample, with its picture.
type Card struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Labels name the bars. Missing, a share of all rows, is drawn separately.
	Labels  []string `json:"labels,omitempty"`
	Counts  []int64  `json:"counts,omitempty"`
	Missing float64  `json:"missing,omitempty"`
	// Image is the picture, a data: URL of a PNG file.
	Image string `json:"image,omitempty"`
}

// maxClasses limits the classes of a confusion matrix: the most frequent ones, and one row and
// column for all other classes.
const maxClasses = 24

// evaluation is the part of a record that is drawn.
type evaluation struct {
	Classes *struct {
		Classes []struct {
			Name    string `json:"class"`
			Support int64  `json:"support"`
		} `json:"per_class"`
		Confusion [][3]int64 `json:"confusion"`
	} `json:"classes"`
	Numbers *struct {
		Unit  string `json:"unit"`
		Joint *struct {
			Min    float64   `json:"min"`
			Width  float64   `json:"width"`
			Counts [][]int64 `json:"counts"`
		} `json:"joint"`
	} `json:"numbers"`
	Clicks *struct {
		Reliability []struct {
			Predicted float64 `json:"predicted"`
			Observed  float64 `json:"observed"`
		} `json:"reliability"`
	} `json:"clicks"`
}

// Evaluation returns the drawings of a record with the tables of an evaluation: the confusion
// matrix of a classifier, predicted against true numbers, or the reliability curve of clicks.
// Records without these have none.
func Evaluation(record []byte) (heat *Heat, reliability *Lines) {
	var e evaluation
	if json.Unmarshal(record, &e) != nil {
		return nil, nil
	}
	switch {
	case e.Classes != nil:
		return e.confusion(), nil
	case e.Numbers != nil && e.Numbers.Joint != nil && len(e.Numbers.Joint.Counts) > 0:
		j, unit := e.Numbers.Joint, cmp.Or(e.Numbers.Unit, "target")
		h := &Heat{RowsAre: "true " + unit, ColumnsAre: "predicted " + unit}
		for i := len(j.Counts) - 1; i >= 0; i-- { // large numbers at the top, as on an axis
			h.Rows, h.Counts = append(h.Rows, binName(j.Min, j.Width, i)), append(h.Counts, j.Counts[i])
		}
		for i := range j.Counts {
			h.Columns = append(h.Columns, binName(j.Min, j.Width, i))
		}
		return h, nil
	case e.Clicks != nil && len(e.Clicks.Reliability) > 0:
		observed, ideal := Curve{Label: "observed"}, Curve{Label: "perfect"}
		for _, d := range e.Clicks.Reliability {
			observed.Points = append(observed.Points, Point{X: d.Predicted, Y: d.Observed})
			ideal.Points = append(ideal.Points, Point{X: d.Predicted, Y: d.Predicted})
		}
		reliability = &Lines{XLabel: "predicted probability", Percent: true}
		reliability.Set([]Curve{observed, ideal}, false)
	}
	return nil, reliability
}

func binName(low, width float64, i int) string {
	return quantity.FloatDigits(low+(float64(i)+0.5)*width, 4)
}

// confusion returns the matrix, nil if the record is damaged.
func (e *evaluation) confusion() *Heat {
	classes := e.Classes.Classes
	if len(classes) == 0 || len(e.Classes.Confusion) == 0 {
		return nil
	}
	order := make([]int, len(classes))
	for i := range order {
		order[i] = i
	}
	h := &Heat{RowsAre: "class", ColumnsAre: "prediction"}
	place := make([]int, len(classes))
	if len(classes) > maxClasses {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(classes[b].Support, classes[a].Support) })
		for i := range place {
			place[i] = maxClasses
		}
		slices.Sort(order[:maxClasses])
		order = order[:maxClasses]
	}
	for at, i := range order {
		place[i] = at
		h.Rows = append(h.Rows, classes[i].Name)
	}
	if n := len(classes) - len(order); n > 0 {
		h.Rows = append(h.Rows, fmt.Sprintf("%d others", n))
	}
	h.Columns = h.Rows
	for range h.Rows {
		h.Counts = append(h.Counts, make([]int64, len(h.Rows)))
	}
	for _, c := range e.Classes.Confusion {
		if c[0] < 0 || c[0] >= int64(len(classes)) || c[1] < 0 || c[1] >= int64(len(classes)) {
			return nil
		}
		h.Counts[place[c[0]]][place[c[1]]] += c[2]
	}
	return h
}

// Worst returns the cards of a record's samples with the largest losses.
func Worst(record []byte) (out []Card) {
	var e struct {
		Worst []struct {
			Sample     int      `json:"sample"`
			Place      string   `json:"place"`
			Values     []string `json:"values"`
			Image      string   `json:"image"`
			Prediction any      `json:"prediction"`
			Truth      any      `json:"truth"`
			Loss       float64  `json:"loss"`
		} `json:"worst"`
	}
	if json.Unmarshal(record, &e) != nil {
		return nil
	}
	text := func(v any) string {
		if x, ok := v.(float64); ok {
			return quantity.FloatDigits(x, 6)
		}
		return fmt.Sprint(v)
	}
	for _, w := range e.Worst[:min(len(e.Worst), maxCards)] {
		c := Card{Name: cmp.Or(w.Place, fmt.Sprintf("sample %d", w.Sample)), Text: fmt.Sprintf("predicted %s, true %s; loss %s", text(w.Prediction), text(w.Truth), quantity.FloatDigits(w.Loss, 5))}
		if len(w.Values) > 0 {
			c.Text += "; " + strings.Join(w.Values, ", ")
		}
		if strings.HasPrefix(w.Image, "data:image/png;base64,") {
			c.Image = w.Image
		}
		out = append(out, c)
	}
	return out
}

// maxCards limits the columns and the samples that are drawn.
const maxCards = 60

// Cards returns the cards of a record's columns.
func Cards(columns []any) (out []Card) {
	text, err := json.Marshal(columns)
	var all []struct {
		Name      string           `json:"name"`
		Kind      string           `json:"kind"`
		Reason    string           `json:"why"`
		Detail    string           `json:"detail"`
		Rows      int64            `json:"rows"`
		Missing   map[string]int64 `json:"missing"`
		Histogram *struct {
			Start  float64 `json:"start"`
			Width  float64 `json:"width"`
			Counts []int64 `json:"counts"`
		} `json:"histogram"`
		Frequent []struct {
			Word string `json:"word"`
			Rows int64  `json:"rows"`
		} `json:"frequent"`
	}
	if err != nil || json.Unmarshal(text, &all) != nil {
		return nil
	}
	for _, c := range all[:min(len(all), maxCards)] {
		card := Card{Name: c.Name, Text: c.Kind}
		if c.Kind == "ignore" {
			card.Text = "left out"
		}
		if more := cmp.Or(c.Reason, c.Detail); more != "" {
			card.Text += ": " + more
		}
		missing := int64(0)
		for _, n := range c.Missing {
			missing += n
		}
		if missing > 0 {
			card.Text += "; " + quantity.Group(missing) + " missing"
			card.Missing = min(1, float64(missing)/float64(max(1, c.Rows)))
		}
		if h := c.Histogram; h != nil {
			for i, n := range h.Counts {
				from := h.Start + float64(i)*h.Width
				card.Labels = append(card.Labels, quantity.FloatDigits(from, 4)+" to "+quantity.FloatDigits(from+h.Width, 4))
				card.Counts = append(card.Counts, n)
			}
		}
		for _, w := range c.Frequent {
			card.Labels, card.Counts = append(card.Labels, w.Word), append(card.Counts, w.Rows)
		}
		out = append(out, card)
	}
	if n := len(all) - maxCards; n > 0 {
		out = append(out, Card{Name: "…", Text: fmt.Sprintf("%d more columns", n)})
	}
	return out
}
