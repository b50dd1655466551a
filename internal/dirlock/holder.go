package dirlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Holder identifies the process that has a directory, if known.
type Holder struct {
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Command string    `json:"command"` // command line
	Since   time.Time `json:"since"`
}

const maxCommand = 300

func thisProcess() Holder {
	host, _ := os.Hostname() // "" if unknown
	command := strings.Join(os.Args, " ")
	if len(command) > maxCommand {
		command = strings.ToValidUTF8(command[:maxCommand], "") + " …"
	}
	return Holder{host, os.Getpid(), command, time.Now().Truncate(time.Second)}
}

func (h Holder) write(f *os.File) error {
	b, err := json.Marshal(h)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(b, '\n'), 0)
	}
	return err
}

// parseHolder parses the output of write. An ended process of this host cannot be the holder: the
// present holder has not yet written.
func parseHolder(b []byte) (h Holder) {
	if err := json.Unmarshal(b, &h); err != nil || h.PID <= 0 {
		return Holder{}
	}
	if h.Host == thisProcess().Host && !alive(h.PID) {
		return Holder{}
	}
	return h
}

// String returns a text such as "process 4711 on host a since 2026-01-02 15:04:05 (ringo train
// mnist …)".
func (h Holder) String() string {
	if h.PID == 0 {
		return "a process that is not known"
	}
	return fmt.Sprintf("process %d on host %s since %s (%s)", h.PID, h.Host, h.Since.Format(time.DateTime), h.Command)
}

// HeldError names the holder of a locked directory. It wraps ErrHeld.
type HeldError struct {
	// Path is the locked file.
	Path string
	// By is the process, zero if unknown.
	By Holder
}

// Error names the holder.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s: %v: %v", e.Path, ErrHeld, e.By)
}

// Is reports ErrHeld as a match.
func (e *HeldError) Is(target error) bool { return errors.Is(target, ErrHeld) }
