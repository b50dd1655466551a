package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/launch"
)

// actVar makes the test binary act as ringo: launchers start their own file
// again, as workers and as the guard.
const actVar = "RINGO_TEST_ACT"

func TestMain(m *testing.M) {
	if os.Getenv(actVar) != "" {
		main()
	}
	for _, name := range []string{launch.RankVar, launch.WorldSizeVar, launch.ServersVar, launch.RoleVar, launch.LocalRankVar, launch.RendezvousVar, launch.TicketVar, launch.CoordinatorVar, launch.ColumnsVar} {
		os.Unsetenv(name) // the tests may run under a launcher
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)        // processes get it by default, also where nohup ignores it here
	os.Setenv(actVar, "1")                                        // for all that the tests start
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // each would sleep 1 s at its end
	temporary, err := os.MkdirTemp("", "ringo")
	if err != nil {
		panic(err)
	}
	os.Setenv("TMPDIR", temporary)                                   // where jobs that fail leave their black boxes
	flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // most tests wait for processes
	status := m.Run()
	os.RemoveAll(temporary)
	os.Exit(status)
}

// words splits a command line at spaces; two quotes stand for an empty word.
func words(line string) []string {
	out := strings.Fields(line)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "''", "")
	}
	return out
}

// command runs one command line and returns its exit status and output.
func command(t *testing.T, line string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(context.Background(), words(line), &out, &errs)
	return status, out.String(), errs.String()
}

// checkRefused runs a command line that must fail with one line on stderr that
// holds all of want, and nothing on stdout.
func checkRefused(t *testing.T, status int, line string, want ...string) {
	t.Helper()
	got, out, errs := command(t, line)
	if got != status || out != "" || !strings.HasPrefix(errs, "ringo: ") || !linesOfFaults(errs) {
		t.Errorf("ringo %s: status %d, stdout %q, stderr %q, want status %d and a line for each fault", line, got, out, errs, status)
	}
	checkHolds(t, "stderr of ringo "+line, errs, want...)
}

// linesOfFaults says that each line tells a fault.
func linesOfFaults(text string) bool {
	return strings.HasSuffix(text, "\n") && strings.Count(text, "\n") == strings.Count("\n"+text, "\nringo: ")
}

// checkHolds wants all parts in text.
func checkHolds(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	commandtest.Holds(t, what, text, parts...)
}

// checkJSON decodes lines of JSON with exactly the named fields each.
func checkJSON(t *testing.T, text string, fields ...string) []map[string]any {
	t.Helper()
	return commandtest.JSON(t, text, fields...)
}

const (
	jobFields     = commandtest.JobFields
	runFields     = commandtest.RunFields
	epochFields   = commandtest.EpochFields
	summaryFields = commandtest.SummaryFields + " classes worst"

	timelineFields = commandtest.TimelineFields
)

// patience bounds every wait for another process, on a machine that others use, too.
const patience = 3 * time.Minute

// buffer is a writer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// program is ringo as a process, with all that it starts.
type program struct {
	t         *testing.T
	line      string
	cmd       *exec.Cmd
	out, errs buffer
	mark      string // in the environment of the process and its descendants
	done      chan error
}

// start starts ringo with variables added to the environment. When the test
// ends, no process of it may be left.
func start(t *testing.T, line string, env ...string) *program {
	t.Helper()
	return startAs(t, []string{os.Args[0]}, nil, line, env...)
}

// startAs is start with other words before the command line, and attributes of the process.
func startAs(t *testing.T, before []string, attr *syscall.SysProcAttr, line string, env ...string) *program {
	t.Helper()
	p := &program{t: t, line: "ringo " + line, done: make(chan error, 1)}
	p.cmd = exec.Command(before[0], append(before[1:], words(line)...)...)
	p.cmd.SysProcAttr = attr
	p.mark = fmt.Sprintf("RINGO_TEST_MARK=%p.%d", p, time.Now().UnixNano())
	p.cmd.Env = append(append(os.Environ(), p.mark), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			p.cmd.Process.Kill()
		}
		p.checkGone()
	})
	return p
}

// wait returns the exit status, -1 for a signal's.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.cmd.Process.Signal(syscall.SIGQUIT) // the stacks are worth seeing
		<-p.done
		p.t.Fatalf("%s did not end in %v; stdout:\n%s\nstderr:\n%s", p.line, patience, &p.out, &p.errs)
		return 0
	}
}

// checkEnd wants an exit status and parts of stderr.
func (p *program) checkEnd(status int, want ...string) {
	p.t.Helper()
	if got := p.wait(); got != status {
		p.t.Errorf("%s: status %d, want %d; stdout:\n%s\nstderr:\n%s", p.line, got, status, &p.out, &p.errs)
	}
	checkHolds(p.t, "stderr of "+p.line, p.errs.String(), want...)
	if strings.Contains(p.errs.String(), "goroutine ") {
		p.t.Errorf("%s: a stack trace:\n%s", p.line, &p.errs)
	}
}

// checkSilent wants each of who to be lost by a silence of at least so long. It is longer on a busy
// machine, where processes tell that they are late.
func (p *program) checkSilent(who string, least time.Duration) {
	p.t.Helper()
	told := regexp.MustCompile(regexp.QuoteMeta(who+" is lost: ") + `(?:server \d+: )?no sign of life for ([0-9.hmsµ]+)`).FindStringSubmatch(p.errs.String())
	if told == nil {
		p.t.Errorf("%s: no silence of %s is in\n%s", p.line, who, &p.errs)
	} else if silent, err := time.ParseDuration(told[1]); err != nil || silent < least {
		p.t.Errorf("%s: %s is lost by a silence of %s, want at least %v: %v", p.line, who, told[1], least, err)
	}
}

// await waits for text on an output.
func (p *program) await(b *buffer, text string) {
	p.t.Helper()
	eventually(p.t, p.line+" to say "+strconv.Quote(text), func() bool { return strings.Contains(b.String(), text) })
}

// eventually polls until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// processes returns the environments of the living processes of p by their numbers. It skips the
// test where the system does not list processes.
func (p *program) processes() map[int][]string {
	p.t.Helper()
	listed, err := os.ReadDir("/proc")
	if err != nil {
		p.cmd.Process.Kill()
		p.t.Skipf("%s has no /proc to find processes in", runtime.GOOS)
	}
	out := map[int][]string{}
	for _, entry := range listed {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile("/proc/" + entry.Name() + "/environ") // that of a process that has ended is empty
		if vars := strings.Split(string(env), "\x00"); slices.Contains(vars, p.mark) {
			out[pid] = vars
		}
	}
	return out
}

// process waits for the process of p in whose environment the variable has this number.
func (p *program) process(variable string, number int) (pid int) {
	p.t.Helper()
	setting := fmt.Sprintf("%s=%d", variable, number)
	eventually(p.t, p.line+" to start a process with "+setting, func() bool {
		for found, vars := range p.processes() {
			if slices.Contains(vars, setting) && (pid == 0 || found < pid) { // before those that it has started
				pid = found
			}
		}
		return pid != 0
	})
	return pid
}

// worker returns the process of a rank.
func (p *program) worker(rank int) (pid int) { return p.process(launch.RankVar, rank) }

// checkGone wants no process left.
func (p *program) checkGone() {
	p.t.Helper()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return
	}
	eventually(p.t, "the end of all processes of "+p.line, func() bool { return len(p.processes()) == 0 })
}
