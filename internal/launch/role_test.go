package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// helpers is a role that the launcher has never heard of.
func helpers(set func(*Role), args ...string) func(*Config) {
	return func(c *Config) {
		r := Role{Name: "helper", Count: 2, Command: append([]string{os.Args[0]}, args...)}
		set(&r)
		c.Roles = append(c.Roles, r)
	}
}

// playHelper says which one it is. The second ends by args[0], until it has been started again when that is "once"; the
// first, and it when it has nothing else to do, end when they are told to.
func playHelper(env RoleEnv, err error, args []string) int {
	if err != nil {
		fmt.Println(err)
		return 9
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Printf("helper %d beside %d, %d addresses\n", env.Index, env.WorldSize, len(env.Addrs))
	if env.Index == 1 && len(args) > 0 {
		switch args[0] {
		case "once":
			if _, err := os.Stat(args[1]); err != nil {
				_ = os.WriteFile(args[1], nil, 0o666)
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			_ = os.WriteFile(args[2], nil, 0o666)
		case "exit":
			return 3
		case "fail", "tell":
			for r := range env.WorldSize {
				awaitFile(filepath.Join(args[1], strconv.Itoa(r)))
			}
			if args[0] == "tell" {
				env.ReportExit(failure.Exit{Reason: "no coffee"})
			}
			return 3
		}
	}
	<-term
	fmt.Println("told to end")
	return 0
}

// A role that nobody knows is started, named and ended like those that are known, and started again as often as it says.
func TestUnknownRole(t *testing.T) {
	died, again := t.TempDir()+"/died", t.TempDir()+"/again"
	l := launch(t, context.Background(), 2, "waiter", []string{again}, func(c *Config) {
		helpers(func(r *Role) { r.Restarts, r.Listens = 1, true }, "once", died, again)(c)
	})
	if l.err != nil {
		t.Fatalf("%v\n%s%s", l.err, l.out, l.log)
	}
	if want := "ringo: helper 1 is lost: killed by signal 9 (SIGKILL); its last line: \"helper 1 beside 2, 2 addresses\"; it is started again (1 of 1)\n"; l.log != want {
		t.Errorf("got %q, want %q", l.log, want)
	}
	for line, times := range map[string]int{
		"[helper 0] helper 0 beside 2, 2 addresses\n": 1,
		"[helper 1] helper 1 beside 2, 2 addresses\n": 2,
		"[helper 0] told to end\n":                    1,
		"[helper 1] told to end\n":                    1,
	} {
		if got := strings.Count(l.out, line); got != times {
			t.Errorf("%q comes %d times, want %d, in\n%s", line, got, times, l.out)
		}
	}
	if len(l.pids) != 5 {
		t.Errorf("%d processes were started, want 5", len(l.pids))
	}
}

// One that may not be started again ends the job by its name, and the mesh is told of it though it listens nowhere.
func TestUnknownRoleIsLost(t *testing.T) {
	for how, want := range map[string]string{
		"fail": "helper 1 is lost: exit status 3; ranks 0 and 1 ended because of it; its last lines:\n  helper 1 beside 2, 0 addresses",
		"tell": "helper 1 failed: no coffee; ranks 0 and 1 ended because of it",
	} {
		joined := t.TempDir()
		l := launch(t, context.Background(), 2, "member", []string{"joined", joined}, func(c *Config) {
			c.Grace = grace
			helpers(func(*Role) {}, how, joined)(c)
		})
		var death *LostProcessError
		if !errors.As(l.err, &death) || death.Role != "helper" || death.Index != 1 || l.err.Error() != want {
			t.Errorf("%s: got %v, want %s", how, l.err, want)
		}
		if told := "told: helper 1 is lost: "; strings.Count(l.out, told) != 2 {
			t.Errorf("%s: %q is not twice in\n%s", how, told, l.out)
		}
	}
}

// The others go on without a spare one.
func TestUnknownRoleIsSpare(t *testing.T) {
	gone := t.TempDir() + "/gone"
	l := launch(t, context.Background(), 1, "waiter", []string{gone}, func(c *Config) {
		helpers(func(r *Role) { r.ContinueWithout = true }, "exit")(c)
		c.Stderr = &cue{to: c.Stderr.(*buffer), word: "the other processes continue", times: 1, do: func() { _ = os.WriteFile(gone, nil, 0o666) }}
	})
	want := "ringo: helper 1 is lost: exit status 3; its last line: \"helper 1 beside 1, 0 addresses\"; the other processes continue\n"
	if l.err != nil || l.log != want || !strings.Contains(l.out, "[helper 0] told to end\n") {
		t.Errorf("%v, got %q, want %q\n%s", l.err, l.log, want, l.out)
	}
}

// Each has the time of its own role between SIGTERM and SIGKILL, whatever others have.
func TestGraceOfRoles(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var ends []string
	l := launch(t, ctx, 1, "late", nil, func(c *Config) {
		for name, grace := range map[string]time.Duration{"short": 0, "longer": 5 * time.Second, "longest": grace} {
			helpers(func(r *Role) { r.Name, r.Count, r.Grace = name, 1, grace })(c)
		}
		c.Stdout = &cue{to: c.Stdout.(*buffer), word: "ready", times: 4, do: cancel}
		c.OnExit = func(number int, how string) {
			mu.Lock()
			defer mu.Unlock()
			name := "rank"
			if number > 0 {
				name = c.Roles[number].Name
			}
			ends = append(ends, name+" "+how)
		}
	})
	// The rank and the short one end in any order.
	slices.Sort(ends[:min(2, len(ends))])
	want := []string{"rank killed by signal 9 (SIGKILL)", "short killed by signal 9 (SIGKILL)", "longest ", "longer killed by signal 9 (SIGKILL)"}
	if !errors.Is(l.err, context.Canceled) || !slices.Equal(ends, want) {
		t.Errorf("%v: got %q, want %q", l.err, ends, want)
	}
}

// playLate does not end when it is told to, unless it is of the role that has the most time: that one takes a little more
// than others have.
func playLate() int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println("ready")
	if _, longest, _ := RoleFromEnv(os.LookupEnv, "longest"); longest {
		<-term
		time.Sleep(termGrace + time.Second)
		return 0
	}
	time.Sleep(forever)
	return 0
}
