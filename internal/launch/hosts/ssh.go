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

// SSH starts programs on other hosts by the system's ssh, with the user's settings and keys.
type SSH struct {
	// Command is the ssh command with options. Empty means "ssh".
	Command []string
	// Within is the connection timeout. 0 means 10 s.
	Within time.Duration
}

// options returns the fixed options: no prompts, and no forwarding but input and output.
//
// BatchMode makes ssh fail instead of prompting for a password or a host key. Terminal, X11, agent
// and ports are not forwarded, and the escape character is off, since the input is binary.
func (s SSH) options() []string {
	within := int(math.Ceil(cmp.Or(s.Within, 10*time.Second).Seconds()))
	return []string{"-T", "-x", "-a", "-o", "BatchMode=yes", "-o", fmt.Sprintf("ConnectTimeout=%d", within), "-o", "ClearAllForwardings=yes", "-o", "EscapeChar=none"}
}

// lastClose is the time for ssh to end after its input ends, and again after a signal.
const lastClose = 3 * time.Second

// Session is a program running on another host, with its input and output.
type Session struct {
	io.Writer
	host   string        // ssh destination
	in     io.Closer     // program's input
	out    *os.File      // program's output
	cmd    *exec.Cmd     // ssh
	errors lastWords     // end of standard error of ssh and the program
	ended  chan struct{} // closed when ssh has ended, with status
	status int           // -1: killed by a signal
	closed sync.Once
}

// Start runs a shell script on a host, without waiting. Reason describes a failure of ssh.
func (s SSH) Start(host, script string) (*Session, error) {
	command := s.Command
	if len(command) == 0 {
		command = []string{"ssh"}
	}
	words := append(append(append([]string{}, command[1:]...), s.options()...), "--", host, "exec sh -c "+Quote(script))
	out := &Session{host: host, cmd: exec.Command(command[0], words...), ended: make(chan struct{})}
	out.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches the launcher only, which informs the session
	out.cmd.Stderr = &out.errors
	out.cmd.WaitDelay = lastClose // a shared connection (ControlMaster) may hold the outputs open
	in, err := out.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A separate pipe: Wait must not close the pipe before all output is read.
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

// Quote returns the text as one word for a shell.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (s *Session) wait() {
	err := s.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		s.status = exit.ExitCode() // -1: killed by a signal
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		s.status = -1
	}
	close(s.ended)
}

// Read reads the output of the remote program.
func (s *Session) Read(b []byte) (int, error) { return s.out.Read(b) }

// Close ends the program's input, and kills ssh if ssh does not end within seconds.
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

// Kill ends ssh immediately, regardless of the program.
func (s *Session) Kill() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }

// Reason describes the end of the session, or reports that the session still runs.
func (s *Session) Reason() string {
	select {
	case <-s.ended:
		return explain(s.host, s.status, s.errors.String())
	case <-time.After(time.Second): // output can end before ssh
		return "its connection has ended"
	}
}

// Status returns the exit status of an ended session; -1 means that a signal ended ssh.
func (s *Session) Status() int {
	<-s.ended
	return s.status
}

// lastWords is a writer that keeps the last bytes.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

const maxWords = 4 << 10

// Write keeps b and drops the oldest bytes.
func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	l.text = l.text[max(0, len(l.text)-maxWords):]
	return len(b), nil
}

// String returns the kept bytes.
func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
