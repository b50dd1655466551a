package launch

import (
	"encoding/json"
	"path/filepath"
)

// savingVar tells the ranks of a program of one's own how its servers are saved with it, or is unset.
const savingVar = "RINGO_SAVING"

// CheckpointEnv is what a launcher says of checkpoints whose servers it has started: see
// train.Servers.Start.
type CheckpointEnv struct {
	Dir     string // the folder, whole
	Attempt int    `json:"Start"` // which start of the job in it this is, from 1; 0: nothing is said
	Resume  bool   // servers have begun with what the folder's last checkpoint names, if there is one
}

// saving reads what CheckpointEnv.String says.
func (r *envReader) saving() (s CheckpointEnv) {
	text, _ := r.lookup(savingVar)
	if text == "" {
		return s
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Attempt < 1 || !filepath.IsAbs(s.Dir) {
		r.fail("%s=%q: want what `ringo run --checkpoint` makes of it: a whole path and the number of a start", savingVar, text)
	}
	return s
}

// String is the variable as NAME=value. That of the zero value takes away what another launcher has said.
func (s CheckpointEnv) String() string {
	if s.Attempt == 0 {
		return savingVar + "="
	}
	text, _ := json.Marshal(s) // of such fields it cannot fail
	return savingVar + "=" + string(text)
}
