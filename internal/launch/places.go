package launch

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nextWait is the longest wait for the next place: longer than the launcher's wait for the end of a
// killed process.
const nextWait = 3 * giveUp

// Places are the places of this process in the epochs after the first: see Config.MinRanks.
type Places struct {
	pipe *os.File
	in   *json.Decoder
}

// OpenPlaces opens the launcher's pipe, or returns nil if this process has one place only.
func OpenPlaces(lookup func(string) (string, bool)) *Places {
	r := envReader{lookup: lookup}
	fd := r.descriptor(PlacesFDVar)
	if fd == 0 || unix.SetNonblock(fd, true) != nil {
		return nil
	}
	unix.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "places")
	return &Places{pipe, json.NewDecoder(pipe)}
}

// Next waits for the next place, and sets this process's variables to it. The result is false if
// the job has ended, and after nextWait.
func (p *Places) Next() bool {
	env, ok := p.Read()
	for name, value := range env {
		_ = os.Unsetenv(name)
		if value != "" {
			_ = os.Setenv(name, value) // without zero bytes
		}
	}
	return ok
}

// Read is Next for a program with other variables than this process's: it returns the variables of
// the next place, empty if unset.
func (p *Places) Read() (env map[string]string, ok bool) {
	if p == nil || p.pipe.SetReadDeadline(time.Now().Add(nextWait)) != nil {
		return nil, false
	}
	var list []string
	if p.in.Decode(&list) != nil {
		return nil, false
	}
	env = map[string]string{}
	for _, name := range placeVars {
		env[name] = ""
	}
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return env, true
}
