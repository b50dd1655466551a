package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// playApart is a rank without a mesh: rank args[0] ends by args[1] ("kill", "stop", "fail"), and
// the others after a while. Rank 0 lets the servers of tables end.
func playApart(env Env, args []string) int {
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
		}
		return 4
	}
	time.Sleep(500 * time.Millisecond)
	if env.Rank > 0 {
		return 0
	}
	fmt.Println("done")
	return playCustomer(env, []string{"leave"})
}

// Where ranks are apart one that is lost is named at once, and the others go on.
func TestLostApart(t *testing.T) {
	apart := func(c *Config) { tablesBeside(0)(c); c.Apart = true }
	for how, want := range map[string]string{
		"kill": `ringo: rank 1 is lost: killed by signal 9 (SIGKILL); its last line: "about to die"; the others go on` + "\n",
		"fail": `ringo: rank 1 is lost: exit status 4; its last line: "about to die"; the others go on` + "\n",
		"stop": "ringo: rank 1 is lost: it had not ended when all others had, and was killed\n",
	} {
		l := launch(t, context.Background(), 3, "apart", []string{"1", how}, apart)
		if l.err != nil || l.log != want || !strings.Contains(l.out, "[rank 1] about to die\n") || !strings.Contains(l.out, "done\n") {
			t.Errorf("%s: %v, want %q, got\n%s%s", how, l.err, want, l.log, l.out)
		}
	}
}

// Nobody takes the place of rank 0: all end, by its name.
func TestFirstLostApart(t *testing.T) {
	for how, want := range map[string]string{"kill": "killed by signal 9 (SIGKILL)", "fail": "exit status 4"} {
		l := launch(t, context.Background(), 3, "apart", []string{"0", how}, func(c *Config) { tablesBeside(0)(c); c.Apart = true })
		var death *DeathError
		if !errors.As(l.err, &death) || death.Rank != 0 || l.err.Error() != "rank 0 is lost: "+want+"; its last lines:\n  about to die" {
			t.Errorf("%s: got %v", how, l.err)
		}
	}
	err := Config{N: 1, Apart: true, Command: []string{"x"}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "apart with 0 servers of tables") {
		t.Errorf("got %v", err)
	}
}
