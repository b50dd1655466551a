package launch

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/transport"
)

// The test binary is also the program that the tests launch: with roleVar set it
// acts as a worker, a guard or a launcher.
const roleVar = "LAUNCH_TEST_ROLE"

// patience is longer than any of these tests takes on a machine that others use, too. Who is ended by
// others alone would go on for longer, and grace is so long that nobody is told to end meanwhile.
const (
	patience = 2 * time.Minute
	forever  = 3 * patience
	grace    = 2 * patience
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		flag.Set("test.parallel", "16") // the tests that run beside others wait for silence
		os.Exit(m.Run())
	}
	os.Exit(play(role, os.Args[1:]))
}

func play(role string, args []string) int {
	if table, present, err := TableFromEnv(os.LookupEnv); present {
		return playTable(table, err, args)
	}
	if role == "late" {
		return playLate()
	}
	if helper, present, err := RoleFromEnv(os.LookupEnv, "helper"); present {
		return playHelper(helper, err, args)
	}
	env, _, err := RankFromEnv(os.LookupEnv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	switch role {
	case "keeper":
		return playKeeper(args)
	case "hello":
		fmt.Printf("rank %d of %d, local %d, launched %v\n", env.Rank, env.WorldSize, env.LocalRank, env.Launched)
		fmt.Fprintf(os.Stderr, "to stderr by %d\n", env.Rank)
		return 0
	case "job": // of this process, or with an argument of one that a launcher beneath it starts
		if len(args) > 0 {
			cfg := Config{Roles: []Role{Ranks(1, os.Args[0])}, Env: os.Environ(), Stdout: os.Stdout}
			if err := Run(context.Background(), cfg); err != nil {
				return 1
			}
		}
		text, present := JobSpecFromEnv(os.LookupEnv)
		fmt.Printf("job %q, %v\n", text, present)
		return 0
	case "placed":
		return playPlaced(env)
	case "exit": // rank and status
		if strconv.Itoa(env.Rank) != args[0] {
			time.Sleep(forever)
		}
		fmt.Println("last words")
		status, _ := strconv.Atoi(args[1])
		return status
	case "sleep":
		time.Sleep(forever)
		return 0
	case "stubborn": // ignores SIGTERM, and so does its child, who tells its number
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleVar+"=ignore")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return 9
		}
		fmt.Printf("child %d\n", child.Process.Pid)
		time.Sleep(forever)
		return 0
	case "waiter":
		awaitFile(args[0])
		return 0
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(forever)
		return 0
	case "lines":
		for i := range 300 {
			fmt.Printf("%d says %s\n", env.Rank, strings.Repeat(strconv.Itoa(i%10), 50))
		}
		return 0
	case "guard":
		if err := Watchdog(os.Stdin); err != nil {
			return 1
		}
		return 0
	case "launcher":
		return playLauncher(args)
	case "member":
		return playMember(env, args)
	case "stopper":
		return playStopper(env, args)
	case "apart":
		return playApart(env, args)
	case "teller":
		return playTeller(env, args)
	case "customer":
		return playCustomer(env, args)
	case "recorded":
		return playRecorded(env, args)
	}
	return 9
}

// playMember joins and waits for the job's end; rank args[0] kills itself.
func playMember(env RankEnv, args []string) int {
	m, err := cluster.Join(context.Background(), cluster.MemberConfig{
		Rendezvous: env.Rendezvous, Ticket: env.Ticket, Version: "1", Rank: env.Rank, WorldSize: env.Members(),
	})
	if err != nil { // such as another's end, before this one had joined
		fmt.Println("told:", err)
		return 3
	}
	defer m.Leave("")
	if args[0] == "joined" { // says so by a file
		_ = os.WriteFile(filepath.Join(args[1], strconv.Itoa(env.Rank)), nil, 0o666)
	}
	if args[0] == "early" { // rank 1 leaves, or ends without that; the others need it, if args[2] says so, but ignore that
		if env.Rank == 1 && args[1] == "leave" {
			m.Leave("barrier 7")
		}
		if env.Rank == 1 {
			os.Exit(0)
		}
		gone := &transport.Error{Op: "receive", Rank: env.Rank, Peer: 1, Err: transport.ErrGoodbye}
		if <-time.After(200 * time.Millisecond); args[2] == "needed" {
			m.Fail(m.Verdict(gone, patience))
		}
		return 0
	}
	if args[0] == "leave" {
		if m.Leave(""); slices.Contains(args[1:], strconv.Itoa(env.Rank)) { // some are stopped then
			fmt.Println("about to end")
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(time.Second) // another thread may take the signal
		}
		if i := slices.Index(args, "for"); i > 0 { // all take their time
			pause, _ := time.ParseDuration(args[i+1])
			time.Sleep(pause)
		}
		return 0
	}
	if strconv.Itoa(env.Rank) == args[0] {
		fmt.Println("about to die")
		if len(args) > 1 {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(forever)
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err = <-m.Lost()
	fmt.Println("told:", err)
	m.Fail(err)
	return 1
}

// playLauncher launches stubborn workers under a guard.
func playLauncher(args []string) int {
	err := Run(context.Background(), Config{
		Roles: []Role{Ranks(2, os.Args[0])}, Env: role("stubborn"), Stdout: os.Stdout, Stderr: os.Stderr,
		Guard: []string{"/usr/bin/env", roleVar + "=guard", os.Args[0]},
		OnStart: func(rank, pid int) {
			fmt.Printf("worker %d\n", pid)
		},
	})
	fmt.Println(err)
	return 1
}

func role(name string) []string { return append(os.Environ(), roleVar+"="+name) }

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

// cue hands on what it is given, and calls do, once, when a word has come so many times.
type cue struct {
	to    *buffer
	word  string
	times int
	do    func()
	once  sync.Once
}

func (c *cue) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	if strings.Count(c.to.String(), c.word) >= c.times {
		c.once.Do(c.do)
	}
	return n, err
}

// onStarted calls do when so many processes have started.
func onStarted(c *Config, processes int, do func()) {
	started := c.OnStart
	c.OnStart = func(rank, pid int) {
		started(rank, pid)
		if processes--; processes == 0 {
			do()
		}
	}
}

// launched is one run of the test binary in a role.
type launched struct {
	err      error
	out, log string
	pids     []int
}

func launch(t *testing.T, ctx context.Context, n int, name string, args []string, set func(*Config)) launched {
	t.Helper()
	var out, log buffer
	var mu sync.Mutex
	var l launched
	cfg := Config{
		Roles: []Role{Ranks(n, append([]string{os.Args[0]}, args...)...)}, Env: role(name), Version: "1", Stdout: &out, Stderr: &log,
		Grace:   200 * time.Millisecond,
		OnStart: func(_, pid int) { mu.Lock(); defer mu.Unlock(); l.pids = append(l.pids, pid) },
	}
	if set != nil {
		set(&cfg)
	}
	start := time.Now()
	l.err = Run(ctx, cfg)
	l.out, l.log = out.String(), log.String()
	for _, pid := range l.pids {
		if !gone(-pid) {
			t.Errorf("a process of group %d is left behind", pid)
		}
	}
	if took := time.Since(start); took > patience {
		t.Errorf("took %v", took)
	}
	return l
}

// gone waits for a process, or all of a group when negative, to end. A zombie
// that its new parent has not reaped has ended.
func gone(pid int) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if syscall.Kill(pid, 0) != nil || !running(pid) {
			return true
		}
	}
	return false
}

// running looks the process or group up in /proc, where there is one.
func running(pid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var state byte
		var parent, group int
		_, rest, _ := strings.Cut(string(b), ") ")
		fmt.Sscanf(rest, "%c %d %d", &state, &parent, &group)
		hit := group == -pid || path == fmt.Sprintf("/proc/%d/stat", pid)
		if hit && state != 'Z' {
			return true
		}
	}
	return len(stats) == 0
}

func TestOutput(t *testing.T) {
	l := launch(t, context.Background(), 3, "hello", nil, nil)
	if l.err != nil {
		t.Fatal(l.err)
	}
	for _, want := range []string{"rank 0 of 3, local 0, launched true\n", "[rank 1] rank 1 of 3, local 1, launched true\n", "[rank 2] rank 2 of 3"} {
		if !strings.Contains(l.out, want) {
			t.Errorf("%q is not in\n%s", want, l.out)
		}
	}
	for _, want := range []string{"to stderr by 0\n", "[rank 1] to stderr by 1\n"} {
		if !strings.Contains(l.log, want) {
			t.Errorf("%q is not in\n%s", want, l.log)
		}
	}
}

// Every process has the job's text as it was given, but not that of a launcher around its own.
func TestJobText(t *testing.T) {
	const text = "model: mlp\nnetwork.port-range=1-2 = é\n"
	l := launch(t, context.Background(), 1, "job", []string{"nested"}, func(c *Config) { c.JobSpec = text })
	if want := "job \"\", false\njob " + strconv.Quote(text) + ", true\n"; l.err != nil || l.out != want {
		t.Errorf("%v, got %q, want %q", l.err, l.out, want)
	}
	ticket := transport.NewTicket()
	for job, want := range map[string]string{
		"ticket: " + ticket.String():  "job holds the ticket",
		"a\x00b":                      "job of 3 bytes",
		strings.Repeat("x", maxJob+1): "job of 130049 bytes: want at most 130048",
	} {
		err := Run(context.Background(), Config{Roles: []Role{Ranks(1, os.Args[0])}, JobSpec: job, Ticket: ticket})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ticket.String()) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	l = launch(t, context.Background(), 1, "job", nil, func(c *Config) { c.JobSpec = strings.Repeat("x", maxJob) })
	if l.err != nil || len(l.out) < maxJob {
		t.Errorf("%v, %d bytes of output", l.err, len(l.out))
	}
}

func TestLinesStayWhole(t *testing.T) {
	l := launch(t, context.Background(), 4, "lines", nil, func(c *Config) { c.Stderr = c.Stdout })
	lines := strings.Split(strings.TrimSuffix(l.out, "\n"), "\n")
	if l.err != nil || len(lines) != 4*300 {
		t.Fatalf("%v, %d lines", l.err, len(lines))
	}
	for _, line := range lines {
		if i := strings.Index(line, " says "); i < 0 || len(line)-i != 6+50 || strings.Count(line, "says") != 1 {
			t.Fatalf("broken line %q", line)
		}
	}
}

func TestExitStatus(t *testing.T) {
	l := launch(t, context.Background(), 3, "exit", []string{"1", "3"}, nil)
	var d *LostProcessError
	if !errors.As(l.err, &d) || d.Rank != 1 || d.ExitStatus != "exit status 3" {
		t.Fatal(l.err)
	}
	if want := "rank 1 is lost: exit status 3; ranks 0 and 2 ended because of it; its last lines:\n  last words"; l.err.Error() != want {
		t.Errorf("got %q, want %q", l.err, want)
	}
}

// A worker that is killed is named to the survivors and by the launcher.
func TestKilledWorker(t *testing.T) {
	l := launch(t, context.Background(), 3, "member", []string{"2"}, func(c *Config) { c.Grace = grace })
	want := "rank 2 is lost: killed by signal 9 (SIGKILL); ranks 0 and 1 ended because of it; its last lines:\n  about to die"
	if l.err == nil || l.err.Error() != want {
		t.Errorf("got %v, want %q", l.err, want)
	}
	told := `told: rank 2 is lost: killed by signal 9 (SIGKILL); its last line: "about to die"`
	for _, who := range []string{"", "[rank 1] "} {
		if !strings.Contains(l.out, who+told+"\n") {
			t.Errorf("%q was not told in\n%s", who, l.out)
		}
	}
}

// TestEndedEarly fails a job if a rank ends before another one that needs it, though all exit with status 0, and begins with that rank.
func TestEndedEarly(t *testing.T) {
	for _, c := range []struct{ how, needed, want string }{
		{"leave", "needed", "rank 1 ended early: it left the job after barrier 7, but rank 0 waits for it in an operation: all ranks must start the same operations; rank 0 ended because of it; it wrote nothing"},
		{"exit", "needed", "rank 1 ended early: its process ended with status 0 before it left the job; rank 0 ended because of it; it wrote nothing"},
		{"leave", "", ""},
		{"exit", "", ""},
	} {
		l := launch(t, context.Background(), 2, "member", []string{"early", c.how, c.needed}, func(c *Config) { c.Grace = grace })
		if got := fmt.Sprint(l.err); c.want == "" && l.err != nil || c.want != "" && got != c.want {
			t.Errorf("%s, %q: got %v, want %q", c.how, c.needed, l.err, c.want)
		}
	}
}

// A server that is killed is named as one, and so is what it says.
func TestKilledServer(t *testing.T) {
	l := launch(t, context.Background(), 2, "member", []string{"3"}, func(c *Config) {
		c.Grace, c.Roles = grace, append(c.Roles, Aggregators(2, c.Roles[0].Command...))
	})
	want := "rank 3 is lost: server 1: killed by signal 9 (SIGKILL); ranks 0 and 1 and server 0 ended because of it; its last lines:\n  about to die"
	var death *LostProcessError
	if l.err == nil || l.err.Error() != want || !errors.As(l.err, &death) || death.Role != "server" || death.Index != 1 {
		t.Errorf("got %v, want %q", l.err, want)
	}
	told := `told: rank 3 is lost: server 1: killed by signal 9 (SIGKILL); its last line: "about to die"`
	for _, who := range []string{"", "[rank 1] ", "[server 0] "} {
		if !strings.Contains(l.out, who+told+"\n") {
			t.Errorf("%q was not told in\n%s", who, l.out)
		}
	}
	if !strings.Contains(l.out, "[server 1] about to die\n") {
		t.Errorf("the server's output: %s", l.out)
	}
	err := Run(context.Background(), Config{Roles: []Role{Ranks(1, os.Args[0]), Aggregators(1)}})
	if err == nil || !strings.Contains(err.Error(), `role "server": no program to run`) {
		t.Errorf("got %v", err)
	}
	var start *StartError
	err = Run(context.Background(), Config{Roles: []Role{Ranks(1, os.Args[0]), Aggregators(1, "no-such-program")}})
	if !errors.As(err, &start) || start.Program != "no-such-program" {
		t.Errorf("got %v", err)
	}
}

// A worker that is stopped is lost for its silence, and killed then: nobody waits
// for it to end on its own.
func TestStoppedWorker(t *testing.T) {
	t.Parallel()
	l := launch(t, context.Background(), 3, "member", []string{"2", "stop"}, func(c *Config) {
		c.Grace, c.Times.DeadAfter = grace, 8*time.Second
	})
	want := "rank 2 is lost: no sign of life for 8s; ranks 0 and 1 ended because of it; its last lines:\n  about to die"
	if l.err == nil || l.err.Error() != want {
		t.Errorf("got %v, want %q", l.err, want)
	}
}

func TestLeaveInGoodOrder(t *testing.T) {
	if l := launch(t, context.Background(), 3, "member", []string{"leave"}, nil); l.err != nil || l.out != "" {
		t.Error(l.err, l.out)
	}
}

// Workers that ignore everything, and their children, are killed.
func TestStubbornWorkers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	l := launch(t, ctx, 2, "stubborn", nil, func(c *Config) {
		c.Stdout = &cue{to: c.Stdout.(*buffer), word: "child ", times: 2, do: func() { cancel(cause) }}
	})
	if !errors.Is(l.err, cause) || !strings.HasPrefix(l.err.Error(), "interrupted: ") {
		t.Error(l.err)
	}
	children := numbers(l.out, "child ")
	if len(children) != 2 {
		t.Fatalf("children %v in %q", children, l.out)
	}
	for _, pid := range children {
		if !gone(pid) {
			t.Errorf("child %d is left behind", pid)
		}
	}
}

// numbers returns the numbers that follow word in text.
func numbers(text, word string) (out []int) {
	for _, line := range strings.Split(text, "\n") {
		if _, n, ok := strings.Cut(line, word); ok {
			if pid, err := strconv.Atoi(n); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// Workers that would go on are told to end.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var hows []string
	l := launch(t, ctx, 3, "sleep", nil, func(c *Config) {
		onStarted(c, 3, cancel)
		c.OnExit = func(_ int, how string) { mu.Lock(); defer mu.Unlock(); hows = append(hows, how) }
	})
	if !errors.Is(l.err, context.Canceled) || len(hows) != 3 || !slices.Contains(hows, "killed by signal 15 (SIGTERM)") {
		t.Error(l.err, hows)
	}
}

// When the launcher is killed, the guard ends even workers that ignore SIGTERM
// and their children.
func TestKilledLauncher(t *testing.T) {
	t.Parallel()
	var out buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = role("launcher")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); strings.Count(out.String(), "child ") < 2 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	cmd.Process.Kill()
	cmd.Wait()
	pids := append(numbers(out.String(), "child "), numbers(out.String(), "worker ")...)
	if len(pids) != 4 {
		t.Fatalf("processes %v in %q", pids, out.String())
	}
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d is left behind", pid)
		}
	}
}

func TestCannotStart(t *testing.T) {
	notProgram := t.TempDir() + "/data"
	if err := os.WriteFile(notProgram, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{
		"no-such-program-anywhere": `cannot start "no-such-program-anywhere": executable file not found`,
		notProgram:                 "exec format error",
	} {
		err := Run(context.Background(), Config{Roles: []Role{Ranks(2, program)}})
		var s *StartError
		if !errors.As(err, &s) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	err := Run(context.Background(), Config{Roles: []Role{Ranks(1, os.Args[0])}, Env: role("sleep"), Guard: []string{"no-such-guard"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-guard") {
		t.Error(err)
	}
}

func TestBusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = Run(context.Background(), Config{Roles: []Role{Ranks(1, os.Args[0])}, Rendezvous: l.Addr().String()})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Error(err)
	}
}

// All faults are told together, each by what it is about.
func TestValidate(t *testing.T) {
	helper := Role{Name: "helper", Count: 1, Command: []string{"x"}}
	with := func(set func(*Role)) Role {
		r := helper
		set(&r)
		return r
	}
	for want, cfg := range map[string]Config{
		"no roles: want at least that of the processes that do the job's work":                      {},
		`role "rank": 0 processes: want at least 1`:                                                 {Roles: []Role{Ranks(0, "x")}},
		`role "server": -1 processes: want at least 0`:                                              {Roles: []Role{Ranks(1, "x"), Aggregators(-1, "x")}},
		"role \"rank\": no program to run\nrole \"ps\": no program to run":                          {Roles: []Role{Ranks(1), ParameterServers(1)}},
		`role "Helper 1": want a name of lower-case letters and digits, such as "helper"`:           {Roles: []Role{Ranks(1, "x"), with(func(r *Role) { r.Name = "Helper 1" })}},
		`role "helper": another role has that name`:                                                 {Roles: []Role{Ranks(1, "x"), helper, helper}},
		`role "server": it joins the mesh, and role "ps" before it does not`:                        {Roles: []Role{Ranks(1, "x"), ParameterServers(1, "x"), Aggregators(1, "x")}},
		`role "rank": 2 restarts: only processes outside the mesh, and not of the first role`:       {Roles: []Role{{Name: "rank", Count: 1, Command: []string{"x"}, Restarts: 2}}},
		`role "rank": it gets sockets: only processes outside the mesh`:                             {Roles: []Role{{Name: "rank", Count: 1, Command: []string{"x"}, Listens: true}}},
		"-1 restarts: want at least 0\nrole \"helper\": grace -1ns: want at least 0":                {Roles: []Role{Ranks(1, "x"), with(func(r *Role) { r.Restarts, r.Grace = -1, -1 })}},
		"dead after -1ns: want at least 0\nrole \"helper\": -2 cores each: want at least 0":         {Roles: []Role{Ranks(1, "x"), with(func(r *Role) { r.DeadAfter, r.CoresEach = -1, -2 })}},
		`role "helper": it shows life on a pipe and joins the mesh`:                                 {Roles: []Role{Ranks(1, "x"), with(func(r *Role) { r.Mesh, r.Heartbeats = true, true })}},
		`role "rank": its processes stand in for each other: only those outside the mesh`:           {Roles: []Role{{Name: "rank", Count: 1, Command: []string{"x"}, Interchangeable: true}}},
		`role "helper": it joins the mesh, and the others are to go on without one of it`:           {Roles: []Role{Ranks(1, "x"), with(func(r *Role) { r.Mesh, r.ContinueWithout = true, true })}},
		"-1 last lines of a dead process: want at least 0\ngrace -2ns: want at least 0\nslow after": {Roles: []Role{Ranks(1, "x")}, TailLines: -1, Grace: -2, SlowAfter: -3},
		"stop within -1ns: want at least 0\nSuspends is given, which says when":                     {Roles: []Role{Ranks(1, "x")}, StopWithin: -1, Suspends: make(chan os.Signal)},
		"job.heartbeat-timeout 1s: want at least twice Times.Heartbeat":                             {Roles: []Role{Ranks(1, "x")}, Times: cluster.Times{DeadAfter: time.Second}},
	} {
		if err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestEnvRoundTrip(t *testing.T) {
	want := RankEnv{Rank: 2, WorldSize: 4, LocalRank: 1, Rendezvous: "[::1]:70", Ticket: transport.NewTicket(), Launched: true, Columns: 80, Record: 5}
	got, present, err := RankFromEnv(lookupIn(want.Strings()))
	if err != nil || !present || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v, %v", got, present, err)
	}
	for rank := range 3 { // with servers, which follow the ranks
		want := RankEnv{Rank: rank, WorldSize: 2, Servers: 1, Rendezvous: "[::1]:70", Ticket: transport.NewTicket()}
		got, _, err := RankFromEnv(lookupIn(want.Strings()))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || got.Serves() != (rank == 2) || got.Members() != 3 {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if _, present, err := RankFromEnv(lookupIn(nil)); present || err != nil {
		t.Error("a place in no job:", present, err)
	}
}

func lookupIn(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range env {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

func TestEnvErrors(t *testing.T) {
	_, present, err := RankFromEnv(lookupIn([]string{"RINGO_RANK=-1", "RINGO_WORLD_SIZE=x", "RINGO_RENDEZVOUS=host", "RINGO_TICKET=secret", "RINGO_COORDINATOR=me", "RINGO_LOCAL_RANK=a"}))
	for _, want := range []string{`RINGO_RANK="-1"`, `RINGO_WORLD_SIZE="x"`, `RINGO_RENDEZVOUS="host"`, "RINGO_TICKET: ", `RINGO_COORDINATOR="me"`, `RINGO_LOCAL_RANK="a"`} {
		if !present || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the ticket is shown:", err)
	}
	for want, env := range map[string][]string{
		`RINGO_ROLE="boss": want "trainer", "server" or nothing`: {"RINGO_RANK=0", "RINGO_WORLD_SIZE=1", "RINGO_ROLE=boss"},
		`RINGO_SERVERS="x"`: {"RINGO_RANK=0", "RINGO_WORLD_SIZE=1", "RINGO_SERVERS=x"},
		"RINGO_RANK=0 of a server: want a number from RINGO_WORLD_SIZE=1 on": {"RINGO_RANK=0", "RINGO_WORLD_SIZE=1", "RINGO_SERVERS=1", "RINGO_ROLE=server"},
		"RINGO_RANK=2 of a server":     {"RINGO_RANK=2", "RINGO_WORLD_SIZE=1", "RINGO_SERVERS=1", "RINGO_ROLE=server"},
		"RINGO_RANK=1: want less than": {"RINGO_RANK=1", "RINGO_WORLD_SIZE=1", "RINGO_SERVERS=1", "RINGO_ROLE=trainer"},
	} {
		if _, _, err := RankFromEnv(lookupIn(env)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	_, _, err = RankFromEnv(lookupIn([]string{"RINGO_RANK=4", "RINGO_WORLD_SIZE=4"}))
	for _, want := range []string{"RINGO_RANK=4: want less than RINGO_WORLD_SIZE=4", "RINGO_RENDEZVOUS is not set", "RINGO_TICKET is not set"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
