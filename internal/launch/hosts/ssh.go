package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// SSH starts programs on other hosts by the system's ssh, so that its settings, keys and agents are those that a person has there.
type SSH struct {
	// Command is ssh, with options. Empty: "ssh".
	Command []string
	// Within is how long it may take to connect. 0: 10 s.
	Within time.Duration
}

// options are ours: nobody is asked for anything, and nothing but the program's input and output is passed on.
//
// BatchMode has ssh fail where it would ask for a password or about a host's key. There is no terminal, no X11, no agent and no port
// passed on, and no escape character, since the input is no text.
func (s SSH) options() []string {
	within := int(math.Ceil(cmp.Or(s.Within, 10*time.Second).Seconds()))
	return []string{"-T", "-x", "-a", "-o", "BatchMode=yes", "-o", fmt.Sprintf("ConnectTimeout=%d", within), "-o", "ClearAllForwardings=yes", "-o", "EscapeChar=none"}
}

// lastClose is how long ssh may take to end when its input has, and then after a signal.
const lastClose = 3 * time.Second

// Session is a program that runs on another host: what is written is its input, and what is read its output.
type Session struct {
	io.Writer
	host   string        // by the name that ssh takes
	in     io.Closer     // the program's input
	out    *os.File      // its output
	cmd    *exec.Cmd     // ssh
	errors lastWords     // what ssh, or the program, has written to standard error
	ended  chan struct{} // ssh has ended, with status
	status int           // -1: by a signal
	closed sync.Once
}

// Start has the shell of a host run a script. It returns at once: what hinders ssh ends the
// session, and Reason says it.
func (s SSH) Start(host, script string) (*Session, error) {
	command := s.Command
	if len(command) == 0 {
		command = []string{"ssh"}
	}
	words := append(append(append([]string{}, command[1:]...), s.options()...), "--", host, "exec sh -c "+quote(script))
	out := &Session{host: host, cmd: exec.Command(command[0], words...), ended: make(chan struct{})}
	out.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for the launcher, which tells the others
	out.cmd.Stderr = &out.errors
	out.cmd.WaitDelay = lastClose // who shares a connection (ControlMaster) may keep its outputs open
	in, err := out.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of our own: Wait must not close it before all is read.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out.in, out.Writer, out.out, out.cmd.Stdout = in, in, read, write
	err = out.cmd.Start()
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return nil, fmt.Errorf("host %s: ssh cannot be started: %w", host, err)
	}
	go out.wait()
	return out, nil
}

// quote is a text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (s *Session) wait() {
	err := s.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		s.status = exit.ExitCode() // -1: a signal
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		s.status = -1
	}
	close(s.ended)
}

// Read reads the program's output.
func (s *Session) Read(b []byte) (int, error) { return s.out.Read(b) }

// Close ends the program's input, and ssh, if it does not end by itself within seconds.
func (s *Session) Close() error {
	s.closed.Do(func() {
		_ = s.in.Close()
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-s.ended:
			case <-time.After(lastClose):
				_ = syscall.Kill(-s.cmd.Process.Pid, sig)
			}
		}
		<-s.ended
		_ = s.out.Close()
	})
	return nil
}

// Kill ends ssh at once, whatever the program does.
func (s *Session) Kill() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }

// Reason says in words how the session has ended, or that it has not.
func (s *Session) Reason() string {
	select {
	case <-s.ended:
		return explain(s.host, s.status, s.errors.String())
	case <-time.After(time.Second): // its output may end before it does
		return "its connection has ended"
	}
}

// Status is the exit status of a session that has ended; -1: a signal has ended ssh.
func (s *Session) Status() int {
	<-s.ended
	return s.status
}

// lastWords keeps the last bytes that are written.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

// maxWords is how many.
const maxWords = 4 << 10

// Write keeps b, and forgets what is too old.
func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	l.text = l.text[max(0, len(l.text)-maxWords):]
	return len(b), nil
}

// String is what was kept.
func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
