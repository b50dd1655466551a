package launch

import (
	"encoding/json"
	"path/filepath"
)

// checkpointVar is the variable with the CheckpointEnv of a custom program's ranks.
const checkpointVar = "RINGO_CHECKPOINT"

// CheckpointEnv describes checkpoints with the launcher's servers: see train.Servers.Start.
type CheckpointEnv struct {
	Dir     string `json:"dir"`     // folder, absolute path
	Attempt int    `json:"attempt"` // number of this attempt in the folder, from 1; 0: no checkpoints described
	Resume  bool   `json:"resume"`  // servers have loaded the state named by the folder's last checkpoint, if any
}

// saving parses the variable written by CheckpointEnv.String.
func (r *envReader) saving() (s CheckpointEnv) {
	text, _ := r.lookup(checkpointVar)
	if text == "" {
		return s
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Attempt < 1 || !filepath.IsAbs(s.Dir) {
		r.fail("%s=%q: want what `ringo run --checkpoint` makes of it: a whole path and the number of a start", checkpointVar, text)
	}
	return s
}

// String returns NAME=value. The zero value's is empty, which clears an inherited variable.
func (s CheckpointEnv) String() string {
	if s.Attempt == 0 {
		return checkpointVar + "="
	}
	text, _ := json.Marshal(s) // fields of these types always encode
	return checkpointVar + "=" + string(text)
}
