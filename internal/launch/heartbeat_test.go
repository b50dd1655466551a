package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// soon has servers of tables be lost soon after they show no life any more.
func soon(restarts int, args ...string) func(*Config) {
	return func(c *Config) {
		tablesBeside(restarts, args...)(c)
		c.Roles[1].DeadAfter = 2 * time.Second
	}
}

// A server of tables that is frozen is killed by its launcher, and started again where that may be: nobody
// has to complain. Else it ends the job by its name, also where it is killed only as the ranks wait for it.
func TestFrozenTable(t *testing.T) {
	t.Parallel()
	l := launch(t, context.Background(), 1, "customer", []string{"hello", "freeze", "hello", "leave"}, soon(1))
	for i := range 2 {
		again := fmt.Sprintf(`hello: "table %d of 2 for 1, answer 0\n"`, i)
		if l.err != nil || strings.Count(l.out, again) != 2 {
			t.Errorf("%v, %q is not twice in\n%s", l.err, again, l.out)
		}
		told := fmt.Sprintf(`ringo: parameter server %d is lost: no sign of life for 2s; its last line: "about to freeze"; it is started again (1 of 1)`, i)
		if strings.Count(l.log, told) != 1 {
			t.Errorf("%q is not once in\n%s", told, l.log)
		}
	}
	l = launch(t, context.Background(), 2, "customer", []string{"freeze", "wait"}, soon(0))
	var death *LostProcessError
	if !errors.As(l.err, &death) || !isServer(death) || !strings.Contains(l.err.Error(), death.Name+" is lost: no sign of life for 2s; ranks 0 and 1 ended because of it; its last lines:\n  about to freeze") {
		t.Errorf("got %v", l.err)
	}
}

// All ranks of a mesh are told which server it was, and no rank is blamed.
func TestFrozenTableIsTold(t *testing.T) {
	t.Parallel()
	l := launch(t, context.Background(), 2, "member", []string{"-1"}, func(c *Config) {
		soon(0)(c)
		started := c.OnStart
		c.OnStart = func(number, pid int) {
			started(number, pid)
			if number == 3 {
				time.AfterFunc(time.Second, func() { syscall.Kill(pid, syscall.SIGSTOP) })
			}
		}
	})
	var death *LostProcessError
	if !errors.As(l.err, &death) || !isServer(death) || death.Index != 1 || death.ExitStatus != "no sign of life for 2s" {
		t.Errorf("got %v", l.err)
	}
	for _, want := range []string{"", "[rank 1] "} {
		if want += "told: parameter server 1 at 127.0.0.1:"; !strings.Contains("\n"+l.out, "\n"+want) {
			t.Errorf("%q is not in\n%s", want, l.out)
		}
	}
}

// A server that never shows life has the time of joining for it.
func TestTableThatNeverBegins(t *testing.T) {
	t.Parallel()
	l := launch(t, context.Background(), 1, "sleep", nil, func(c *Config) {
		soon(0, "mute")(c)
		c.Times.Join = 3 * time.Second
	})
	var death *LostProcessError
	if !errors.As(l.err, &death) || !isServer(death) || death.ExitStatus != "no sign of life for 3s" {
		t.Errorf("got %v", l.err)
	}
}

// playKeeper launches a customer of two servers of tables, which are lost after a second.
func playKeeper(words []string) int {
	servers := ParameterServers(2, os.Args[0])
	servers.DeadAfter = time.Second
	err := Run(context.Background(), Config{
		Roles: []Role{Ranks(1, append([]string{os.Args[0]}, words...)...), servers},
		Env:   role("customer"), Stdout: os.Stdout, Stderr: os.Stderr, OnStart: func(_, pid int) { fmt.Printf("pid %d\n", pid) },
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// A launcher that was stopped together with its servers takes none of them for frozen when all go on.
func TestSuspendedLauncher(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go on")
	cmd := exec.Command(os.Args[0], "hello", file, "hello", "leave")
	cmd.Env = append(os.Environ(), role("keeper")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, pids, text := bufio.NewScanner(out), []int{}, ""
	for hellos := 0; (hellos < 2 || len(pids) < 3) && lines.Scan(); { // then all show life, and are known
		text += lines.Text() + "\n"
		pid := 0
		if n, _ := fmt.Sscanf(lines.Text(), "pid %d", &pid); n == 1 {
			pids = append(pids, pid)
		} else if strings.HasPrefix(lines.Text(), "hello: ") {
			hellos++
		}
	}
	all := append([]int{cmd.Process.Pid}, pids...)
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, pid := range all {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(3 * time.Second) // suspended, and then in use again
	}
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		text += lines.Text() + "\n"
	}
	if err := cmd.Wait(); err != nil || len(all) != 4 {
		t.Errorf("%v\n%s", err, text)
	}
}
