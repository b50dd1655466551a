package train

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Metrics of records are fields "train_NAME" and "eval_NAME" after the other fields.

const (
	trainPrefix = "train_"
	evalPrefix  = "eval_"
)

// MarshalJSON writes the metrics as fields.
func (e Epoch) MarshalJSON() ([]byte, error) {
	type plain Epoch
	return withFigures(plain(e), e.Train, e.Eval)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (e *Epoch) UnmarshalJSON(text []byte) error {
	type plain Epoch
	if err := json.Unmarshal(text, (*plain)(e)); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	delete(all, "train_loss")
	delete(all, "eval_loss")
	e.Train, e.Eval = map[string]float64{}, map[string]float64{}
	for key, text := range all {
		for prefix, into := range map[string]map[string]float64{trainPrefix: e.Train, evalPrefix: e.Eval} {
			var v float64
			if name, is := strings.CutPrefix(key, prefix); is && json.Unmarshal(text, &v) == nil {
				into[name] = v
			}
		}
	}
	return nil
}

// MarshalJSON writes the metrics as fields, and two fields also under their names of earlier
// versions, until 0.2.
func (s Summary) MarshalJSON() ([]byte, error) {
	type plain Summary
	return withFigures[float64](struct {
		plain
		FormerDiskFull int    `json:"checkpoints_without_room,omitempty"`
		FormerDiverged string `json:"blown_up,omitempty"`
	}{plain(s), s.DiskFullCheckpoints, s.Diverged}, nil, s.Eval)
}

// MarshalJSON writes the metrics as fields.
func (s Seeds) MarshalJSON() ([]byte, error) {
	type plain Seeds
	return withFigures(plain(s), nil, s.Eval)
}

// MarshalJSON writes the metrics as fields.
func (e SavedEvaluation) MarshalJSON() ([]byte, error) {
	type plain SavedEvaluation
	return withFigures[float64](plain(e), nil, e.Eval)
}

func withFigures[T any](object any, train, eval map[string]T) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text = text[:len(text)-1]
	for _, part := range []struct {
		prefix  string
		figures map[string]T
	}{{trainPrefix, train}, {evalPrefix, eval}} {
		for _, name := range slices.Sorted(maps.Keys(part.figures)) {
			v, err := json.Marshal(part.figures[name])
			if err != nil {
				return nil, err
			}
			text = append(append(text, `,"`+part.prefix+name+`":`...), v...)
		}
	}
	return append(text, '}'), nil
}
