package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// playApart is a rank without a mesh: rank args[0] ends by args[1] ("kill", "stop", "fail"). Rank 0 ends, and
// lets the servers of tables end, when there is the file args[3], others when there is args[2].
func playApart(env RankEnv, args []string) int {
	if env.Rendezvous != "" {
		fmt.Println("there is a rendezvous:", env.Rendezvous)
		return 3
	}
	if strconv.Itoa(env.Rank) == args[0] {
		fmt.Println("about to die")
		switch args[1] {
		case "kill":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "stop":
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(forever) // another thread may have the signal, a little later
		case "tell":
			env.Tell(failure.Exit{Reason: "no file"})
		}
		return 4
	}
	if env.Rank > 0 {
		awaitFile(args[2])
		return 0
	}
	awaitFile(args[3])
	fmt.Println("done")
	return playCustomer(env, []string{"leave"})
}

// apart has ranks form no mesh, and go on without those that are lost.
func apart(c *Config) { c.Roles[0].Mesh, c.Roles[0].ContinueWithout = false, true }

func awaitFile(path string) {
	for end := time.Now().Add(forever); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
}

// Where ranks are apart one that is lost is named at once, and the others go on.
func TestLostApart(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"kill": `ringo: rank 1 is lost: killed by signal 9 (SIGKILL); its last line: "about to die"; the other processes continue` + "\n",
		"fail": `ringo: rank 1 is lost: exit status 4; its last line: "about to die"; the other processes continue` + "\n",
		"tell": "ringo: rank 1 failed: no file; the other processes continue\n",
		"stop": "ringo: rank 1 is lost: it still ran after all other processes had ended, and was killed\n",
	} {
		lost, alone := filepath.Join(t.TempDir(), "lost"), filepath.Join(t.TempDir(), "alone")
		tell := func(file string) {
			if err := os.WriteFile(file, nil, 0o666); err != nil {
				t.Error(err)
			}
		}
		l := launch(t, context.Background(), 3, "apart", []string{"1", how, lost, alone}, func(c *Config) {
			tablesBeside(0)(c)
			apart(c)
			if c.Grace = grace; how == "stop" { // rank 0 ends within it, and then rank 1 is killed
				c.Grace = 3 * time.Second
				c.Stdout = &cue{to: c.Stdout.(*buffer), word: "about to die", times: 1, do: func() { tell(lost) }}
			} else {
				c.Stderr = &cue{to: c.Stderr.(*buffer), word: "the other processes continue", times: 1, do: func() { tell(lost) }}
			}
			c.OnExit = func(rank int, _ string) {
				if rank == 2 {
					tell(alone)
				}
			}
		})
		if l.err != nil || l.log != want || !strings.Contains(l.out, "[rank 1] about to die\n") || !strings.Contains(l.out, "done\n") {
			t.Errorf("%s: %v, want %q, got\n%s%s", how, l.err, want, l.log, l.out)
		}
	}
}

// Nobody takes the place of rank 0: all end, by its name.
func TestFirstLostApart(t *testing.T) {
	for how, want := range map[string]string{"kill": "killed by signal 9 (SIGKILL)", "fail": "exit status 4"} {
		l := launch(t, context.Background(), 3, "apart", []string{"0", how, "", ""}, func(c *Config) { tablesBeside(0)(c); apart(c) })
		var death *LostProcessError
		if !errors.As(l.err, &death) || death.Rank != 0 || l.err.Error() != "rank 0 is lost: "+want+"; ranks 1 and 2 ended because of it; its last lines:\n  about to die" {
			t.Errorf("%s: got %v", how, l.err)
		}
	}
}
