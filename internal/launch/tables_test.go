package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// playTable answers who connects with its number and how many it has answered, and is killed
// by a line "die". It ends when it is told to: after "save" it takes more time for it than others have, or, to
// "stay", all the time that there is.
func playTable(env RoleEnv, err error, args []string) int {
	if len(args) > 0 && args[0] == "tell" && env.ReportExit(failure.Exit{Rank: -1, Reason: "disk full"}) {
		return 4
	}
	if err != nil || len(args) > 0 && args[0] == "fail" {
		fmt.Println("no table:", err)
		return 4
	}
	if len(args) == 0 || args[0] != "mute" {
		defer env.SendHeartbeats(100 * time.Millisecond)()
	}
	if len(args) > 1 && args[0] == "last" {
		if _, err := os.Stat(args[1] + strconv.Itoa(env.Index)); err == nil {
			fmt.Println("left again")
			return 0
		}
	}
	l, err := net.FileListener(os.NewFile(uintptr(env.Socket), "socket"))
	if err != nil || l.Addr().String() != env.Addrs[env.Index] {
		fmt.Println(l, err, env)
		return 5
	}
	for answered := 0; ; answered++ {
		conn, err := l.Accept()
		if err != nil {
			return 6
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		switch line {
		case "die\n":
			fmt.Println("about to die")
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "freeze\n":
			fmt.Println("about to freeze")
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(forever) // this thread may go on for a moment
		case "leave\n":
			return 0
		case "save\n":
			term := make(chan os.Signal, 1)
			signal.Notify(term, syscall.SIGTERM)
			_ = conn.Close()
			<-term
			if len(args) > 0 && args[0] == "stay" {
				time.Sleep(forever)
			}
			time.Sleep(termGrace + 300*time.Millisecond)
			fmt.Println("saved")
			return 0
		case "die last\n": // in the midst of leaving: the client has ended, and its launcher knows
			if os.WriteFile(args[1]+strconv.Itoa(env.Index), nil, 0o666) != nil {
				return 7
			}
			_, _ = io.Copy(io.Discard, conn)
			time.Sleep(500 * time.Millisecond)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "fail\n":
			fmt.Fprintln(conn, "in a moment")
			_, _ = io.Copy(io.Discard, conn) // until the client has ended
			fmt.Println("disk full")
			return 4
		}
		fmt.Fprintf(conn, "table %d of %d for %d, answer %d\n", env.Index, len(env.Addrs), env.WorldSize, answered)
		_ = conn.Close()
	}
}

// open are connections that stay until the process has ended.
var open []net.Conn

// playCustomer says each word to each server of tables and prints the answers; at a path it waits until it is there.
func playCustomer(env RankEnv, words []string) int {
	for _, word := range words {
		switch word {
		case "wait":
			time.Sleep(forever)
		case "quit":
			return 7
		}
		if filepath.IsAbs(word) {
			awaitFile(word)
			continue
		}
		for _, addr := range env.Tables {
			conn, err := net.DialTimeout("tcp", addr, patience)
			if err != nil {
				fmt.Println(err)
				return 3
			}
			fmt.Fprintln(conn, word)
			if word == "die last" {
				open = append(open, conn) // the system closes it when this process has ended, which the race detector delays by a second
				continue
			}
			answer, _ := bufio.NewReader(conn).ReadString('\n')
			fmt.Printf("%s: %q\n", word, answer)
			if word != "fail" { // this one tells the server of the client's end
				_ = conn.Close()
			}
		}
	}
	return 0
}

// tablesBeside are two servers that keep parameters, which may be started again so often.
func tablesBeside(restarts int, args ...string) func(*Config) {
	return func(c *Config) {
		servers := ParameterServers(2, append([]string{os.Args[0]}, args...)...)
		servers.Restarts = restarts
		c.Roles = append(c.Roles, servers)
	}
}

// isServer tells that a parameter server has ended the job.
func isServer(death *LostProcessError) bool { return death.Role == tables && death.Rank < 0 }

// Servers of tables find their sockets, ranks find their addresses, and all end well.
func TestTables(t *testing.T) {
	l := launch(t, context.Background(), 1, "customer", []string{"hello", "hello", "leave"}, tablesBeside(0))
	for _, want := range []string{`hello: "table 0 of 2 for 1, answer 0\n"`, `hello: "table 1 of 2 for 1, answer 1\n"`} {
		if l.err != nil || !strings.Contains(l.out, want) {
			t.Errorf("%v, %q is not in\n%s", l.err, want, l.out)
		}
	}
}

// A server that is killed while it leaves, after the ranks have ended well, is started again and ends properly. One that has
// nothing to save is only reported, and one that may not be started again ends the job by name.
func TestTableKilledWhileItLeaves(t *testing.T) {
	beside := func(restarts int, stateless bool) func(*Config) {
		made := tablesBeside(restarts, "last", filepath.Join(t.TempDir(), "seen"))
		return func(c *Config) {
			made(c)
			servers := &c.Roles[len(c.Roles)-1]
			servers.Stateless, servers.Grace = stateless, patience // they are not told to end
		}
	}
	words := []string{"hello", "die last"}
	l := launch(t, context.Background(), 1, "customer", words, beside(1, false))
	for i := range 2 {
		if l.err != nil || !strings.Contains(l.log, fmt.Sprintf("parameter server %d is lost: killed by signal 9 (SIGKILL); it is started again (1 of 1)", i)) ||
			!strings.Contains(l.out, fmt.Sprintf("[ps %d] left again\n", i)) {
			t.Errorf("server %d: %v\n%s%s", i, l.err, l.log, l.out)
		}
	}
	l = launch(t, context.Background(), 1, "customer", words, beside(0, true))
	if told := "is lost: killed by signal 9 (SIGKILL); the job was complete and does not need it"; l.err != nil || strings.Count(l.log, told) != 2 {
		t.Errorf("%v: %q is not twice in\n%s", l.err, told, l.log)
	}
	l = launch(t, context.Background(), 1, "customer", words, beside(0, false))
	var death *LostProcessError
	if !errors.As(l.err, &death) || !isServer(death) {
		t.Errorf("got %v", l.err)
	}
}

// One that is killed is started again at the same address, where clients have waited; its
// last words are told. One time too often ends the job with its name.
func TestKilledTable(t *testing.T) {
	l := launch(t, context.Background(), 1, "customer", []string{"hello", "die", "hello", "leave"}, tablesBeside(1))
	for i := range 2 {
		again := fmt.Sprintf(`hello: "table %d of 2 for 1, answer 0\n"`, i)
		if l.err != nil || strings.Count(l.out, again) != 2 {
			t.Errorf("%v, %q is not twice in\n%s", l.err, again, l.out)
		}
		told := fmt.Sprintf(`ringo: parameter server %d is lost: killed by signal 9 (SIGKILL); its last line: "about to die"; it is started again (1 of 1)`, i)
		if !strings.Contains(l.log, told) || !strings.Contains(l.out, fmt.Sprintf("[ps %d] about to die\n", i)) {
			t.Errorf("%q is not in\n%s%s", told, l.log, l.out)
		}
	}
	l = launch(t, context.Background(), 2, "customer", []string{"die", "die", "wait"}, tablesBeside(1))
	var death *LostProcessError
	if !errors.As(l.err, &death) || !isServer(death) || !strings.Contains(l.err.Error(), fmt.Sprintf("%s is lost: killed by signal 9 (SIGKILL); ranks 0 and 1 ended because of it; its last lines:\n  about to die", death.Name)) {
		t.Errorf("got %v", l.err)
	}
}

// One that cannot begin ends the job, after as many trials as are allowed.
func TestTableThatFails(t *testing.T) {
	l := launch(t, context.Background(), 1, "sleep", nil, tablesBeside(2, "fail"))
	var death *LostProcessError
	if !errors.As(l.err, &death) || !isServer(death) || death.ExitStatus != "exit status 4" || !strings.Contains(l.log, "it is started again (2 of 2)") {
		t.Errorf("got %v\n%s", l.err, l.log)
	}
	var start *StartError
	err := Run(context.Background(), Config{Roles: []Role{Ranks(1, os.Args[0]), ParameterServers(1, "no-such-program")}})
	if !errors.As(err, &start) || start.Program != "no-such-program" {
		t.Errorf("got %v", err)
	}
}

// Ranks that are done leave no servers behind, even if nobody has told these.
func TestTablesEndWithRanks(t *testing.T) {
	if l := launch(t, context.Background(), 1, "hello", nil, tablesBeside(1)); l.err != nil || strings.Contains(l.log, "again") {
		t.Errorf("%v\n%s", l.err, l.log)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := launch(t, ctx, 1, "sleep", nil, func(c *Config) {
		tablesBeside(1)(c)
		onStarted(c, 3, cancel)
	})
	if !errors.Is(l.err, context.Canceled) || strings.Contains(l.log, "again") {
		t.Errorf("%v\n%s", l.err, l.log)
	}
}

// A server that fails is the culprit, although ranks that fail because of it end first; a rank that is
// killed is, whatever becomes of the servers. Nobody waits for the time of grace.
func TestCulpritBesideTables(t *testing.T) {
	patient := func(c *Config) {
		tablesBeside(0)(c) // else one that ends before its rank is started again
		c.Grace = grace
	}
	l := launch(t, context.Background(), 1, "customer", []string{"fail", "quit"}, patient)
	var death *LostProcessError
	if !errors.As(l.err, &death) || !isServer(death) || death.ExitStatus != "exit status 4" || !strings.Contains(l.err.Error(), "disk full") {
		t.Errorf("got %v\n%s%s", l.err, l.out, l.log)
	}
	l = launch(t, context.Background(), 2, "member", []string{"1"}, patient)
	if !errors.As(l.err, &death) || isServer(death) || death.Rank != 1 || death.ExitStatus != "killed by signal 9 (SIGKILL)" {
		t.Errorf("got %v", l.err)
	}
}

// Servers that were told to end have their time to save, others have not.
func TestTablesHaveTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		time  time.Duration
		args  []string
		saved int
	}{{0, []string{"stay"}, 0}, {grace, nil, 2}} {
		l := launch(t, context.Background(), 1, "customer", []string{"save", "quit"}, func(cfg *Config) {
			tablesBeside(0, c.args...)(cfg)
			cfg.Roles[1].Grace = c.time
		})
		var death *LostProcessError
		if !errors.As(l.err, &death) || isServer(death) || death.ExitStatus != "exit status 7" || strings.Count(l.out, "saved\n") != c.saved {
			t.Errorf("%v: %v\n%s", c.time, l.err, l.out)
		}
	}
}

func TestTableEnv(t *testing.T) {
	want := RoleEnv{Role: tables, Index: 1, Addrs: []string{"127.0.0.1:7", "[::1]:8"}, WorldSize: 3, Ticket: transport.NewTicket(), Socket: 3, End: 4}
	got, present, err := TableFromEnv(lookupIn(want.Strings()))
	if err != nil || !present || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v, %v", got, present, err)
	}
	if _, present, err := TableFromEnv(lookupIn([]string{"RINGO_RANK=1"})); present || err != nil {
		t.Error(present, err)
	}
	rank := RankEnv{Rank: 0, WorldSize: 1, Rendezvous: "h:1", Ticket: transport.NewTicket(), Tables: want.Addrs}
	if got, _, err := RankFromEnv(lookupIn(rank.Strings())); err != nil || fmt.Sprint(got) != fmt.Sprint(rank) {
		t.Errorf("got %v, %v", got, err)
	}
	_, _, err = TableFromEnv(lookupIn([]string{"RINGO_PS_INDEX=2", "RINGO_PS_ADDRS=a,b:1", "RINGO_LISTEN_FD=2", "RINGO_TICKET=secret"}))
	for _, want := range []string{`want HOST:PORT,HOST:PORT,…, got "a"`, `RINGO_LISTEN_FD="2": want a number of at least 3`, "RINGO_WORLD_SIZE is not set, but RINGO_PS_INDEX is", "RINGO_TICKET: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, present, err := TableFromEnv(lookupIn([]string{"RINGO_PS_INDEX=0", "RINGO_WORLD_SIZE=1", "RINGO_TICKET=" + want.Ticket.String()})); !present || err == nil || err.Error() != "RINGO_PS_ADDRS is not set, but RINGO_PS_INDEX is: a process needs both" {
		t.Errorf("got %v, %v", present, err)
	}
	env := want.Strings()
	env[0] = "RINGO_PS_INDEX=" + strconv.Itoa(len(want.Addrs))
	if _, _, err := TableFromEnv(lookupIn(env)); err == nil || !strings.Contains(err.Error(), "RINGO_PS_INDEX=2, but RINGO_PS_ADDRS has 2 addresses") {
		t.Errorf("got %v", err)
	}
}
