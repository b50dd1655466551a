package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/transport"
)

// playTeller is a rank without a mesh that tells of its end. Rank 0 falls by args[0] when all have come, whose files are in
// args[1]: "kill", "stop", "fail"; with "alone" it stops, and the servers of tables end well without it.
func playTeller(env RankEnv, args []string) int {
	how, place := args[0], failure.Position{Where: "in step 3 of epoch 1"}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	come := func(rank int) string { return filepath.Join(args[1], fmt.Sprint(rank)) }
	if err := os.WriteFile(come(env.Rank), nil, 0o666); err != nil {
		return 9
	}
	for r := range env.WorldSize {
		awaitFile(come(r))
	}
	if env.Rank == 0 {
		fmt.Println("about to die")
		_ = os.WriteFile(come(env.WorldSize), nil, 0o666)
		switch how {
		case "kill":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "fail":
			env.Tell(failure.Exit{Reason: "no file"})
			return 4
		}
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(forever) // this thread may go on for a moment
	}
	switch {
	case how == "alone" && env.Rank == 1:
		return playCustomer(env, []string{"leave"})
	case how == "alone":
		return 0
	case how == "stop": // as who hears of it from the servers
		awaitFile(come(env.WorldSize))
		env.Tell(failure.Exit{Cause: "rank 0", Reason: "rank 0 is lost", Place: place})
		return 1
	}
	<-term
	env.Tell(failure.Exit{Reason: "interrupted", Place: place, Stopped: true})
	return 1
}

// However rank 0 of ranks without a mesh is lost, it is named, once, with where the others were; none of
// these is called lost.
func TestFirstLostIsToldOnce(t *testing.T) {
	t.Parallel()
	const last = "; its last lines:\n  about to die"
	for how, want := range map[string]string{
		"kill":  "rank 0 is lost: killed by signal 9 (SIGKILL), in step 3 of epoch 1; ranks 1 and 2 ended because of it" + last,
		"stop":  "rank 0 is lost: the parameter servers receive no heartbeat from it, in step 3 of epoch 1; ranks 1 and 2 ended because of it" + last,
		"fail":  "rank 0 failed: no file; ranks 1 and 2 ended because of it in step 3 of epoch 1",
		"alone": "rank 0 is lost: it still ran after all other processes had ended, and was killed" + last,
	} {
		l := launch(t, context.Background(), 3, "teller", []string{how, t.TempDir()}, func(c *Config) { tablesBeside(0)(c); apart(c) })
		var death *LostProcessError
		if !errors.As(l.err, &death) || death.Rank != 0 || l.err.Error() != want || l.log != "" {
			t.Errorf("%s: got %v\n%s, want %s", how, l.err, l.log, want)
		}
	}
}

// What a server of tables has failed with is told in place of its exit status, whether it is started again or not.
func TestTableTellsItsFault(t *testing.T) {
	t.Parallel()
	l := launch(t, context.Background(), 1, "sleep", nil, tablesBeside(1, "tell"))
	var death *LostProcessError
	if !errors.As(l.err, &death) || death.Failed != "disk full" || l.err.Error() != death.Name+" failed: disk full; rank 0 ended because of it" {
		t.Errorf("got %v", l.err)
	}
	again := regexp.MustCompile(`ringo: parameter server [01] failed: disk full; it is started again \(1 of 1\)\n`)
	if !again.MatchString(l.log) { // both fail: either may end the job
		t.Errorf("%v is not in\n%s", again, l.log)
	}
}

// Nothing is written to what is no pipe, and a long text is cut.
func TestTell(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	end := failure.Exit{Rank: 7, Cause: "rank 0", Reason: strings.Repeat("é", maxWhy), Place: failure.Position{Where: "in step 1", Bucket: "b"}, Stopped: true}
	if writeReport(0, end) || writeReport(int(file.Fd()), end) || writeReport(1<<20, end) {
		t.Error("told to nobody")
	}
	if info, err := file.Stat(); err != nil || info.Size() > 0 {
		t.Error(info.Size(), err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := &process{number: 2, reportPipe: r, reportRead: make(chan struct{})}
	env := RankEnv{WorldSize: 3, Rank: 2, Ticket: transport.NewTicket(), Tables: []string{"h:1"}, End: int(w.Fd())}
	if got, _, err := RankFromEnv(lookupIn(env.Strings())); err != nil || got.End != env.End {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := w.WriteString("\n\nno JSON\n{}\n"); err != nil {
		t.Fatal(err)
	}
	if !env.Tell(end) {
		t.Error("not told")
	}
	_ = w.Close()
	p.listen(0, 0)
	end.Rank, end.Reason = 2, end.Reason[:maxWhy]+"..."
	if got := p.end(); got == nil || *got != end {
		t.Errorf("got %v", got)
	}
}
