package launch

import (
	"encoding/json"
	"fmt"
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

// SavingFromEnv reads what Saving.String says.
func SavingFromEnv(lookup func(string) (string, bool)) (s Saving, err error) {
	text, _ := lookup(savingVar)
	if text == "" {
		return s, nil
	}
	if err = json.Unmarshal([]byte(text), &s); err != nil || s.Start < 1 || !filepath.IsAbs(s.Dir) {
		return Saving{}, fmt.Errorf("%s=%q: want what `ringo run --checkpoint` makes of it: a whole path and the number of a start", savingVar, text)
	}
	return s, nil
}

// String is the variable as NAME=value. That of the zero value takes away what another launcher has said.
func (s Saving) String() string {
	if s.Start == 0 {
		return savingVar + "="
	}
	text, _ := json.Marshal(s) // of such fields it cannot fail
	return savingVar + "=" + string(text)
}
