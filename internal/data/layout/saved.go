package layout

import (
	"encoding/json"
	"errors"
	"path/filepath"
)

// plain is Layout without methods: MarshalJSON would otherwise call itself.
type plain Layout

// saved is a layout as JSON.
type saved struct {
	Name string `json:"name"`
	*plain
}

// MarshalJSON writes the layout with its name, without the folder, for a checkpoint. Layouts with
// the same text read files alike.
func (l *Layout) MarshalJSON() ([]byte, error) {
	return json.Marshal(saved{filepath.Base(l.name), (*plain)(l)})
}

// UnmarshalJSON reads the output of MarshalJSON and rejects invalid layouts.
func (l *Layout) UnmarshalJSON(text []byte) error {
	s := saved{plain: new(plain)}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if s.plain == nil {
		return errors.New("a layout without columns")
	}
	*l = Layout(*s.plain)
	l.name = s.Name
	return l.settle(nil)
}

// Meaning returns the layout's description of samples as JSON, without separators of values, Make
// and ignored columns. A model trained with one layout can read samples of any layout with an equal
// meaning.
func (l *Layout) Meaning() []byte {
	m := plain{}
	for _, c := range l.Columns {
		if c.Kind != Ignore {
			c.Separator, c.Make = "", Generate{}
			m.Columns = append(m.Columns, c)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // impossible: numbers and strings only
	}
	return text
}
