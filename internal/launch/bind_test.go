package launch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/placement"
)

// playPlaced says where this process may run, and what it was told of it.
func playPlaced(env RankEnv) int {
	fmt.Printf("%d on %v, %s\n", env.Rank, placement.Allowed(), env.Placed)
	return 0
}

// What a person says of binding and of threads is read, or refused by name.
func TestBindFromEnv(t *testing.T) {
	vars := map[string]string{}
	for _, v := range (RankEnv{WorldSize: 2, Rendezvous: "127.0.0.1:1", Ticket: make([]byte, 32), Placed: "bound to a core each"}).Strings() {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	vars[BindVar], vars[ThreadsVar] = "core", "3"
	env, _, err := RankFromEnv(lookup)
	if err != nil || env.Bind != BindCore || env.Threads != 3 || env.Placed != "bound to a core each" {
		t.Errorf("%+v, %v", env, err)
	}
	for text, want := range map[string]int{"": 0, "x": 0, "-1": 0, "0": 0, "2": 2} {
		vars[ThreadsVar] = text
		if got := ThreadsFromEnv(lookup); got != want {
			t.Errorf("%s=%q: %d threads, want %d", ThreadsVar, text, got, want)
		}
	}
	vars[BindVar] = "socket"
	if _, _, err := RankFromEnv(lookup); err == nil || !strings.Contains(err.Error(), `RINGO_BIND="socket": want one of [auto core none], or nothing`) {
		t.Error(err)
	}
}
