package launch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
)

// playStopper does steps until all ranks stop, and then ends with status args[0]; rank 1 does not end if there are more, and with
// "end" all end by themselves, when they are asked.
func playStopper(env RankEnv, args []string) int {
	m, err := cluster.Join(context.Background(), cluster.MemberConfig{
		Rendezvous: env.Rendezvous, Ticket: env.Ticket, Version: "1", Rank: env.Rank, WorldSize: env.Members(),
	})
	if err != nil {
		fmt.Println("told:", err)
		return 3
	}
	s := cluster.NewStopper("a folder", 0)
	if m.Stoppable(s); len(args) == 1 && args[0] == "end" {
		m.Report(ready(env))
		time.Sleep(time.Second)
		m.Leave("")
		return 0
	}
	for step := int64(0); ; step++ {
		if err := s.Begin(step); err != nil {
			fmt.Printf("rank %d: %d: %v\n", env.Rank, step, err)
			break
		}
		if time.Sleep(time.Duration(1+env.Rank) * time.Millisecond); step == 5 {
			m.Report(ready(env))
		}
	}
	if env.Rank == 1 && len(args) > 1 {
		time.Sleep(forever)
	}
	m.Leave("")
	status, _ := strconv.Atoi(args[0])
	return status
}

// ready is what a rank reports that can be told to stop: the coordinator hears of that before.
func ready(env RankEnv) string { return fmt.Sprintf("rank %d is ready", env.Rank) }

// stop launches two ranks that can stop and tells them to when both are ready, and again when
// they have agreed.
func stop(t *testing.T, args []string, within time.Duration) launched {
	t.Helper()
	asks := make(chan string, 1)
	var log buffer
	both := &cue{to: new(buffer), word: "ready", times: 2, do: func() { asks <- "SIGTERM" }}
	l := launch(t, context.Background(), 2, "stopper", args, func(c *Config) {
		c.Stop, c.StopWithin = asks, within
		c.Report = func(line string) {
			if strings.HasSuffix(line, "ready") {
				fmt.Fprintln(both, line)
			} else {
				fmt.Fprintln(&log, line)
			}
			if strings.Contains(line, "all ranks stop after step") {
				asks <- "SIGTERM"
			}
		}
	})
	l.log = log.String()
	return l
}

// Ranks that can stop do so after the same step, whatever status a program of the user's then has. It is no
// loss, and the launcher tells where.
func TestStop(t *testing.T) {
	for _, status := range []string{"0", "1", "143"} {
		l := stop(t, []string{status}, patience)
		told := regexp.MustCompile(`^SIGTERM: all ranks stop after step (\d+), save the run in a folder and end, within .*; another signal kills them immediately\n$`).FindStringSubmatch(l.log)
		if told == nil {
			t.Fatalf("status %s: the log is %q", status, l.log)
		}
		for rank := range 2 {
			if want := fmt.Sprintf("rank %d: %s: stopped by SIGTERM after step %s, saved in a folder\n", rank, told[1], told[1]); !strings.Contains(l.out, want) {
				t.Errorf("status %s: %q is not in %q", status, want, l.out)
			}
		}
		var stopped *cluster.StoppedError
		if errors.As(l.err, &stopped) != (status != "0") || l.err != nil && strconv.FormatInt(stopped.Step, 10) != told[1] {
			t.Errorf("status %s: %v", status, l.err) // with status 0 they had come to their end
		}
	}
}

// Ranks that come to their end meanwhile have not been stopped.
func TestStopAtTheEnd(t *testing.T) {
	if l := stop(t, []string{"end"}, patience); l.err != nil {
		t.Errorf("%v; %s", l.err, l.log)
	}
}

// A rank that does not end in time is made to.
func TestStopTakesTooLong(t *testing.T) {
	l := stop(t, []string{"1", "never"}, 300*time.Millisecond)
	var stopped *cluster.StoppedError
	if !errors.As(l.err, &stopped) || l.err.Error() != "interrupted by SIGTERM" {
		t.Error(l.err)
	}
	if want := "SIGTERM: not all ranks have saved the run and ended within 300ms: they are made to end\n"; !strings.HasSuffix(l.log, want) {
		t.Errorf("the log is %q, want %q", l.log, want)
	}
}

// Ranks that cannot stop are made to end at once.
func TestStopOfOthers(t *testing.T) {
	asks := make(chan string, 1)
	l := launch(t, context.Background(), 2, "sleep", nil, func(c *Config) {
		c.Stop = asks
		onStarted(c, 2, func() { asks <- "SIGHUP" })
	})
	if l.err == nil || l.err.Error() != "interrupted by SIGHUP" || l.log != "" {
		t.Error(l.err, l.log)
	}
}
