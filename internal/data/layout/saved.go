package layout

import (
	"encoding/json"
	"errors"
	"path/filepath"
)

// plain is a layout without its methods, so that JSON of one does not call itself.
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

// UnmarshalJSON reads what MarshalJSON has written, and refuses what no layout is.
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

// Meaning is what the layout says of samples, as JSON, and not of the files that they lie in: what
// was trained on samples of one layout understands those of another one with the same meaning.
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
		panic(err) // numbers and words alone
	}
	return text
}
