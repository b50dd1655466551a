package launch

import (
	"encoding/json"
	"path/filepath"
)

// savingVar tells the ranks of a program of one's own how its servers are saved with it, or is unset.
const savingVar = "RINGO_SAVING"

// Saving is what a launcher says of checkpoints whose servers it has started: see train.Servers.Start.
type Saving struct {
	Dir    string // the folder, whole
	Start  int    // which start of the job in it this is, from 1; 0: nothing is said
	Resume bool   // servers have begun with what the folder's last checkpoint names, if there is one
}

// saving reads what Saving.String says.
func (r *envReader) saving() (s Saving) {
	text, _ := r.lookup(savingVar)
	if text == "" {
		return s
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Start < 1 || !filepath.IsAbs(s.Dir) {
		r.fail("%s=%q: want what `ringo run --checkpoint` makes of it: a whole path and the number of a start", savingVar, text)
	}
	return s
}

// String is the variable as NAME=value. That of the zero value takes away what another launcher has said.
func (s Saving) String() string {
	if s.Start == 0 {
		return savingVar + "="
	}
	text, _ := json.Marshal(s) // of such fields it cannot fail
	return savingVar + "=" + string(text)
}
