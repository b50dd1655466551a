package dirlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Holder says which process has a directory, as far as it is known.
type Holder struct {
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Command string    `json:"command"` // its command line
	Since   time.Time `json:"since"`
}

// maxCommand is how much of a command line is told, in bytes.
const maxCommand = 300

func thisProcess() Holder {
	host, _ := os.Hostname() // "" where it is not known
	command := strings.Join(os.Args, " ")
	if len(command) > maxCommand {
		command = strings.ToValidUTF8(command[:maxCommand], "") + " …"
	}
	return Holder{host, os.Getpid(), command, time.Now().Truncate(time.Second)}
}

// write makes the file say who holds the directory, in place of who did before.
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

// parseHolder reads what write writes. A process of this host that has ended does not hold anything:
// whoever does has not written yet.
func parseHolder(b []byte) (h Holder) {
	if err := json.Unmarshal(b, &h); err != nil || h.PID <= 0 {
		return Holder{}
	}
	if h.Host == thisProcess().Host && !alive(h.PID) {
		return Holder{}
	}
	return h
}

// String is such as "process 4711 on host a since 2026-01-02 15:04:05 (ringo train mnist …)".
func (h Holder) String() string {
	if h.PID == 0 {
		return "a process that is not known"
	}
	return fmt.Sprintf("process %d on host %s since %s (%s)", h.PID, h.Host, h.Since.Format(time.DateTime), h.Command)
}

// HeldError says who holds a directory that was to be taken. It is an ErrHeld.
type HeldError struct {
	// Path is the file that is locked.
	Path string
	// By is the process, the zero value where it is not known.
	By Holder
}

// Error names the holder.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s: %v: %v", e.Path, ErrHeld, e.By)
}

// Is says that it is an ErrHeld.
func (e *HeldError) Is(target error) bool { return errors.Is(target, ErrHeld) }
