package train

import (
	"encoding/json"
	"testing"
)

// Stages tell only of what took time, add up, and have the same names as JSON.
func TestStages(t *testing.T) {
	s := Stages{Pull: Stage{StarvedS: 0.25}, Send: Stage{BusyS: 1, BlockedS: 2.5}}
	if got, want := s.String(), "pull starved 250ms; pool; send busy 1s blocked 2.5s; back"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.add(Stages{Pool: Stage{BusyS: 3}, Send: Stage{BusyS: 1, StarvedS: 4}, Back: Stage{0.5, 1, 0}})
	text, err := json.Marshal(s)
	want := `{"pull":{"busy_s":0,"starved_s":0.25,"blocked_s":0},"pool":{"busy_s":3,"starved_s":0,"blocked_s":0},` +
		`"send":{"busy_s":2,"starved_s":4,"blocked_s":2.5},"back":{"busy_s":0.5,"starved_s":1,"blocked_s":0}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

// A rank that has its whole model has no such stages.
func TestNoStages(t *testing.T) {
	var f *heterParams
	if f.spent() != nil || f.total() != nil {
		t.Error("stages without heter-trainers")
	}
	if text, err := json.Marshal(Epoch{}); err != nil || string(text) == "" {
		t.Error(err)
	}
}
