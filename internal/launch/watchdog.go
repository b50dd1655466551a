package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// watchdogGrace is the time for a killed launcher's processes to end as their connections close.
const watchdogGrace = 3 * time.Second

// Watchdog outlives the launcher. Watchdog reads the running process groups from r, the launcher's
// pipe. When the pipe ends while groups still run, because the launcher was killed, Watchdog kills
// groups left after 3 s. Watchdog is the whole body of the hidden subcommand in Config.Guard.
func Watchdog(r io.Reader) error {
	groups, err := readGroups(r)
	deadline := time.Now().Add(watchdogGrace)
	for pause := 10 * time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 200*time.Millisecond) {
		if dropDead(groups); len(groups) == 0 {
			return err
		}
		time.Sleep(pause)
	}
	for g := range groups {
		_ = syscall.Kill(-g, syscall.SIGKILL)
	}
	return err
}

// readGroups reads the launcher's log of groups to the end: "+123" began and "-123" ended.
func readGroups(r io.Reader) (map[int]bool, error) {
	groups := map[int]bool{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		var sign byte
		var group int
		if _, err := fmt.Sscanf(in.Text(), "%c%d", &sign, &group); err != nil || group <= 1 {
			return groups, fmt.Errorf("guard: %q: want + or - and the number of a process group", in.Text())
		}
		switch sign {
		case '+':
			groups[group] = true
		case '-':
			delete(groups, group)
		default:
			return groups, fmt.Errorf("guard: %q: want + or - and the number of a process group", in.Text())
		}
	}
	return groups, in.Err()
}

func dropDead(groups map[int]bool) {
	for g := range groups {
		if errors.Is(syscall.Kill(-g, 0), syscall.ESRCH) {
			delete(groups, g)
		}
	}
}

// watchdog is the launcher's end of the guard process. The zero value means no guard.
type watchdog struct {
	mu   sync.Mutex
	cmd  *exec.Cmd
	pipe *os.File
}

// start starts the guard in a separate session, out of reach of Ctrl-C and of the terminal's end.
func (g *watchdog) start(command, env []string) error {
	if len(command) == 0 {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return &StartError{Program: command[0], Err: err}
	}
	defer r.Close()
	g.cmd = exec.Command(command[0], command[1:]...)
	g.cmd.Env = append([]string{}, env...)
	g.cmd.Stdin = r
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.cmd.Start(); err != nil {
		_ = w.Close()
		g.cmd = nil
		return &StartError{Program: command[0], Err: err}
	}
	g.pipe = w
	return nil
}

// note reports a group that started ('+') or ended ('-') to the guard.
func (g *watchdog) note(sign byte, group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe != nil {
		_, _ = fmt.Fprintf(g.pipe, "%c%d\n", sign, group) // without a guard the job still runs
	}
}

// stop ends the guard once all groups have ended.
func (g *watchdog) stop() {
	if g.pipe == nil {
		return
	}
	_ = g.pipe.Close()
	late := time.AfterFunc(watchdogGrace+time.Second, func() { _ = g.cmd.Process.Kill() })
	_ = g.cmd.Wait()
	late.Stop()
}
