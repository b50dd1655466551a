package job

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/ringo-ml/ringo/internal/setting"
)

// LaunchSpec is what a launcher tells the processes that it starts, in one variable
// (launch.JobVar). It holds no ticket.
type LaunchSpec struct {
	// Command is the launcher's, such as "ringo train". A process of the same command has all its settings from here;
	// of another they are usual values, which its own command line may change.
	Command string
	// Settings are those that were given.
	Settings []setting.Assignment
	// Start, where it is not nil, says how servers that keep parameters take part in checkpoints.
	Start *Attempt `json:",omitempty"`
	// URLs are what was said where settings have paths of this host that stand for something elsewhere, by path.
	URLs map[string]string `json:",omitempty"`
}

// maxLaunched is how long a variable may be on all systems that ringo runs on.
const maxLaunched = 100 << 10

// Text is what ParseLaunched reads. It fails where it is too long for a variable.
func (l LaunchSpec) Text() (string, error) {
	b, err := json.Marshal(l)
	if err == nil && len(b) > maxLaunched {
		err = fmt.Errorf("the settings of the job are %d bytes, at most %d can be handed to its processes: make lists shorter", len(b), maxLaunched)
	}
	return string(b), err
}

// ParseLaunched reads what a launcher tells.
func ParseLaunched(text string) (l LaunchSpec, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err = d.Decode(&l); err != nil {
		err = fmt.Errorf("the settings of the job cannot be read: %w: is the launcher another version of ringo?", err)
	}
	return l, err
}
