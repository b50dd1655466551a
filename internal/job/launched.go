package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// LaunchSpec is the part of a job that a launcher passes to its processes, in launch.JobVar.
// LaunchSpec holds no ticket.
type LaunchSpec struct {
	// Command is the launcher's command, such as "ringo train". Settings are final in a process of
	// the same command; the command line of another command may change them.
	Command string `json:"command"`
	// Settings are the assignments that the launcher was given.
	Settings []setting.Assignment `json:"settings"`
	// Start, if not nil, identifies this start of the job for the servers' part of checkpoints.
	Start *Attempt `json:"attempt,omitempty"`
	// URLs are the original remote addresses of settings that now hold local paths, by setting
	// path.
	URLs map[string]string `json:"urls,omitempty"`
	// Lost are the losses after which a job of virtual workers continues.
	Lost Losses `json:"lost,omitzero"`
	// Verbose prints the starts and ends of processes, and Colour colours the lines of rank 0.
	Verbose bool `json:"verbose,omitempty"`
	Colour  bool `json:"colour,omitempty"`
}

// Losses are losses of ranks, as text, and the time of the first.
type Losses struct {
	At    time.Time `json:"at"`
	Ranks []string  `json:"ranks"`
}

// maxLaunched is the longest environment variable that all supported systems accept, in bytes.
const maxLaunched = 100 << 10

// Text returns the JSON that ParseLaunched reads. It fails above maxLaunched bytes.
func (l LaunchSpec) Text() (string, error) {
	b, err := json.Marshal(l)
	if err == nil && len(b) > maxLaunched {
		err = fmt.Errorf("the settings of the job are %d bytes, at most %d can be handed to its processes: make lists shorter", len(b), maxLaunched)
	}
	return string(b), err
}

// ParseLaunched parses the result of LaunchSpec.Text.
func ParseLaunched(text string) (l LaunchSpec, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err = d.Decode(&l); err != nil {
		err = fmt.Errorf("the settings of the job cannot be read: %w: is the launcher another version of ringo?", err)
	}
	return l, err
}
