package tensornames

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
)

func orders(parts ...table.Part) data.Description {
	return data.Description{Encoder: &table.Encoder{Columns: []table.Column{
		{Name: "x", Kind: table.Number, Deviation: 1},
		{Name: "when", Kind: table.Date, Format: "YYYY-MM-DD", Parts: parts},
		{Name: "y", Kind: table.Target, Deviation: 1},
	}}}
}

// TestDatePartsAreNamed: each input of a date has a name, and dates of other parts or other kinds
// are conflicts.
func TestDatePartsAreNamed(t *testing.T) {
	days, hour := table.Part{Name: "days", Mean: 19_000, Deviation: 300}, table.Part{Name: "hour", Mean: 12, Deviation: 4}
	both, one := orders(days, hour), orders(days)
	if got := Texts(Extract(both).Values); !slices.Equal(got, []string{"x", "when (days)", "when (hour)"}) {
		t.Errorf("got %q", got)
	}
	if got := Extract(both).Unlike(Extract(one), true); got != "column when (hour)" {
		t.Errorf("got %q", got)
	}
	if err := Compare(both, both, true); err != nil {
		t.Error(err)
	}
	if err := Compare(both, one, true); err == nil || !strings.Contains(err.Error(), "column when: the checkpoint has the date's parts") {
		t.Errorf("other parts: %v", err)
	}
	words := orders(days)
	words.Encoder.Columns[1] = table.Column{Name: "when", Kind: table.Category, Words: []string{"2024-01-01"}}
	if err := Compare(words, both, true); err == nil || !strings.Contains(err.Error(), "column when: the checkpoint has it as category, these data as date") {
		t.Errorf("another kind: %v", err)
	}
	if got := Meanings(both); !slices.Contains(got, "when (hour) date YYYY-MM-DD of parts [{days 19000 300} {hour 12 4}]") {
		t.Errorf("got %q", got)
	}
}
