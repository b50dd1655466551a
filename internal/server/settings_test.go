package server

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
)

// newSettings is a configuration with its defaults and its table, in a job of a mode and an optimizer.
func newSettings(t *testing.T, mode, optimizer string) (*Config, *setting.Table) {
	t.Helper()
	c := Defaults()
	rows := append(c.Settings(), setting.Row{Path: "sync", Value: setting.Text(&mode)}, setting.Row{Path: pathOptimizer, Value: setting.Text(&optimizer)})
	table, err := setting.New(rows...)
	if err != nil {
		t.Fatal(err)
	}
	return &c, table
}

func give(t *testing.T, table *setting.Table, text string) {
	t.Helper()
	for _, one := range strings.Fields(text) {
		name, value, _ := strings.Cut(one, "=")
		if err := table.Apply(setting.Assignment{Path: setting.Path("ps." + name), Text: value, Origin: "test"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSettingsThatHaveNoEffect(t *testing.T) {
	const keeps = "it needs sync bsp or ssp or async or geo"
	for _, c := range []struct {
		mode, optimizer, given string
		idle                   string // of the first, "" for none
	}{
		{"ssp", "sgd", "durability=wal-fsync dir=x checkpoint-every=1m init-from=y failure-policy=continue admission=count:2 memory=1GiB disk=2GiB delete-after-unseen-days=3 shrink-every=24h", ""},
		{"allreduce", "sgd", "durability=wal", "ps.durability has no effect: " + keeps},
		{"sum", "sgd", "failure-policy=continue", "ps.failure-policy has no effect: " + keeps},
		{"async", "sgd", "dir=x", "ps.dir has no effect: it needs ps.durability or ps.memory"},
		{"async", "sgd", "dir=x memory=1GiB", ""},
		{"async", "sgd", "disk=1GiB", "ps.disk has no effect: it needs ps.memory"},
		{"async", "sgd", "checkpoint-every=1m", "ps.checkpoint-every has no effect: it needs ps.durability"},
		{"async", "sgd", "shrink-every=1h", "ps.shrink-every has no effect: it needs ps.delete-after-unseen-days or training.optimizer click"},
		{"async", "click", "shrink-every=1h", ""},
	} {
		_, table := newSettings(t, c.mode, c.optimizer)
		give(t, table, c.given)
		got := ""
		if idle := table.Idle(); len(idle) > 0 {
			got = idle[0].Error()
		}
		if got != c.idle {
			t.Errorf("%s, %s, %s: got %q, want %q", c.mode, c.optimizer, c.given, got, c.idle)
		}
	}
}

func TestSettingsAreCheckedBeforeThePlaceIsKnown(t *testing.T) {
	if err := Defaults().CheckSettings(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ given, want string }{
		{"durability=wal", "ps.dir is missing: ps.durability wal stores the surviving state in a folder"},
		{"memory=1GiB", "ps.dir is missing: with ps.memory 1GiB, rows beyond memory are stored in a folder"},
		{"memory=1GiB dir=x disk=1MiB", "ps.disk 1MiB: want at least 16 MiB, or 0 for no limit"},
		{"disk=1GiB", "ps.disk 1GiB has no effect without ps.memory: all rows are in memory"},
		{"checkpoint-every=-1m durability=wal dir=x", "ps.checkpoint-every -1m0s: want 0 or more"},
		{"checkpoint-every=1m", "ps.checkpoint-every 1m0s has no effect with ps.durability none: want checkpoint or wal"},
		{"init-from=./x dir=x durability=wal", `ps.init-from and ps.dir are both "x": the new job needs a separate folder`},
		{"delete-after-unseen-days=-1", "ps.delete-after-unseen-days -1: want 0 or more days"},
		{"shrink-every=-1s", "ps.shrink-every -1s: want 0 or more, such as 24h"},
	} {
		cfg, table := newSettings(t, "async", "sgd")
		cfg.Servers = 3
		give(t, table, c.given)
		got := ""
		if err := cfg.CheckSettings(); err != nil {
			got = err.Error()
			if lines := setting.Lines(err, func(p setting.Path) string { return "<" + string(p) + ">" }); !strings.HasPrefix(lines[0], "<servers.") && !strings.HasPrefix(lines[0], "<ps.") {
				t.Errorf("%s: a command cannot name the setting in %q", c.given, lines[0])
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.given, got, c.want)
		}
	}
}

func TestListenHTTP(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	c := Config{HTTP: first.Addr().String(), Mode: engine.Async}
	if err := c.ListenHTTP(); err == nil || !strings.HasPrefix(err.Error(), "output.http "+c.HTTP+": cannot listen at "+c.HTTP) {
		t.Errorf("got %v", err)
	}
	c = Config{HTTP: "localhost:0", Index: 3}
	if err := c.ListenHTTP(); err != nil || c.AdminHost != "localhost" {
		t.Fatalf("%q, %v", c.AdminHost, err)
	}
	_ = c.Admin.Close()
	for address, want := range map[string]string{"127.0.0.1": `output.http "127.0.0.1": want HOST:PORT`, "[::1]:65534": `output.http "[::1]:65534": server 2 would listen at port 65536: want ports up to 65535`} {
		c = Config{HTTP: address, Index: 2}
		if err := c.ListenHTTP(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
	c = Config{}
	if err := c.ListenHTTP(); err != nil || c.Admin != nil {
		t.Errorf("without an address: %v, %v", c.Admin, err)
	}
}

// What is not for a person to see is of no row.
func TestEverySettingHasOneSentence(t *testing.T) {
	_, table := newSettings(t, "async", "sgd")
	for _, r := range table.Rows() {
		if (strings.HasPrefix(string(r.Path), "servers.") || strings.HasPrefix(string(r.Path), "ps.")) && (r.About == "" || slices.Contains([]byte("."), r.About[len(r.About)-1]) || strings.Contains(r.About, "--")) {
			t.Errorf("%s: %q", r.Path, r.About)
		}
	}
}
