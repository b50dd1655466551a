package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/ps/server"
	"github.com/ringo-ml/ringo/ps/shard"
	"github.com/ringo-ml/ringo/ps/tables"
)

// keepFlags say what servers that keep parameters do beside serving them: when they save, what they begin
// with, which rows there are, and where a person may ask them.
type keepFlags struct {
	saveEvery   time.Duration
	from        string
	http        string
	httpOpen    bool
	admit       admission
	unseen      int
	shrinkEvery time.Duration
}

// keepFlagNames are those that servers of tables take over.
var keepFlagNames = []string{"ps-save-every", "ps-from", "ps-http", "ps-http-open", "ps-admit", "ps-unseen", "ps-shrink-every"}

func (f *keepFlags) register(fs *pflag.FlagSet) {
	fs.DurationVar(&f.saveEvery, "ps-save-every", 0, "`time` between checkpoints in --ps-dir, such as 10m: what --durability checkpoint loses with a server at most, besides the time that a checkpoint takes, and with wal what a server has to replay when it begins. 0: one at the end, those asked for, and with wal one whenever the log has come to the size of the tables (and 256 MiB)")
	fs.StringVar(&f.from, "ps-from", "", "begin with the newest checkpoints in `DIR`, the --ps-dir of an earlier job of any number of servers, optimizer state included")
	fs.StringVar(&f.http, "ps-http", "", "`HOST:PORT` where server 0 tells by HTTP how it is and takes orders to shrink and save; server 1 at the next port, and so on; port 0: any free one, which it says. Orders need a token, which it says too, or the one in "+launch.OrdersVar)
	fs.BoolVar(&f.httpOpen, "ps-http-open", false, "let --ps-http be an address that other hosts reach: they may read under the HOST given, and only this host give orders")
	fs.Var(&f.admit, "ps-admit", "`RULE` of which keys get a row: count:3 (those pulled so often), share:0.1 (so many of all, by a hash), or both with a comma; others have first values and learn nothing (default: all)")
	fs.IntVar(&f.unseen, "ps-unseen", 0, "a shrink deletes rows that nobody has pulled or pushed for more than so many `days`; 0: none. With --optimizer click see --ps-click")
	fs.DurationVar(&f.shrinkEvery, "ps-shrink-every", 0, "shrink after each such `time`, which counts as a day, such as 24h; 0: when --ps-http is told to")
}

// check reports faults; last is the number of the last server that listens as they say.
func (f *keepFlags) check(durability, dir string, last int, faults *faultList) {
	if f.saveEvery < 0 || f.saveEvery > 0 && durability == string(tables.None) {
		faults.add("--ps-save-every %v with --durability %s: want a positive time, and checkpoint or wal", f.saveEvery, durability)
	}
	if f.from != "" && dir != "" && filepath.Clean(f.from) == filepath.Clean(dir) {
		faults.add("--ps-from and --ps-dir are both %q: the new job needs a folder of its own", dir)
	}
	if f.unseen < 0 {
		faults.add("--ps-unseen %d: want days, 0 or more", f.unseen)
	}
	if f.shrinkEvery < 0 {
		faults.add("--ps-shrink-every %v: want a positive time, such as 24h", f.shrinkEvery)
	}
	if f.unseen > 0 && f.shrinkEvery == 0 && f.http == "" {
		faults.add("--ps-unseen %d has no effect without --ps-shrink-every or --ps-http: no day would pass", f.unseen)
	}
	if f.httpOpen && f.http == "" {
		faults.add("--ps-http-open has no effect without --ps-http")
	}
	if f.http != "" {
		if _, err := f.httpAddress(max(0, last)); err != nil {
			faults.add("--ps-http %q: %w", f.http, err)
		}
		if _, err := launch.OrdersFromEnv(os.LookupEnv); err != nil {
			faults.add("--ps-http: %w", err)
		}
	}
}

// checkDays reports faults of what days do where it is known whether the rule of rows says that itself. A
// server learns it from its first trainer.
func (f *keepFlags) checkDays(click bool, faults *faultList) {
	if f.shrinkEvery > 0 && f.unseen == 0 && !click {
		faults.add("--ps-shrink-every %v has no effect without --ps-unseen: no row would go", f.shrinkEvery)
	}
	if f.unseen > 0 && click {
		faults.add("--ps-unseen %d has no effect with --optimizer click: say --ps-click delete_after=%[1]d", f.unseen)
	}
}

// checkByHand reports what a rank that is started by hand cannot do for servers that are, too.
func (f *psFlags) checkByHand(changed func(string) bool, faults *faultList) {
	for _, name := range slices.Concat([]string{"durability", "fsync", "ps-dir", "ps-memory", "ps-disk", "ps-store", "ps-restarts"}, keepFlagNames) {
		if changed(name) {
			faults.add("--%s has no effect on a rank: give it to ringo server", name)
		}
	}
}

// httpAddress is where a server listens for people.
func (f *keepFlags) httpAddress(index int) (string, error) {
	host, port, err := net.SplitHostPort(f.http)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("want HOST:PORT with a port from 0 to 65535")
	}
	if n > 0 {
		n += index
	}
	if n > 65535 {
		return "", fmt.Errorf("server %d would listen at port %d: want ports up to 65535", index, n)
	}
	if ip := net.ParseIP(host); !f.httpOpen && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("other hosts may reach it, and reads need no token: want 127.0.0.1, ::1 or localhost, or say --ps-http-open")
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// listen opens the server's address for people, where there is one.
func (f *keepFlags) listen(c *server.Config) error {
	if f.http == "" {
		return nil
	}
	address, err := f.httpAddress(c.Index)
	if err != nil {
		return err
	}
	if c.AdminToken, err = launch.OrdersFromEnv(os.LookupEnv); err != nil {
		return err
	}
	c.AdminHost, _, _ = net.SplitHostPort(address)
	if c.Admin, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("--ps-http cannot listen at %s: %w", address, err)
	}
	return nil
}

// apply sets what the flags say.
func (f *keepFlags) apply(c *server.Config) {
	c.SaveEvery, c.From, c.DeleteAfter, c.ShrinkEvery = f.saveEvery, f.from, f.unseen, f.shrinkEvery
	c.Admission = shard.Admission(f.admit)
	c.FullWait = fullWait
}

// fullWait is how long servers wait for room on a full disk for their last checkpoint, and saveGrace how
// long launched ones may take for it.
const (
	fullWait  = 5 * time.Minute
	saveGrace = 10 * time.Minute
)

// tableGrace is how long launched servers may take to end.
func (f *psFlags) tableGrace() time.Duration {
	if f.durability == string(tables.None) {
		return 0
	}
	return saveGrace
}

// admission is a flag: count:3, share:0.1, or both.
type admission shard.Admission

// Set reads them.
func (a *admission) Set(text string) error { return (*shard.Admission)(a).UnmarshalText([]byte(text)) }

// String writes what Set reads.
func (a *admission) String() string {
	text, _ := shard.Admission(*a).MarshalText() // which never fails
	return string(text)
}

// Type is the flag's kind in help texts.
func (a *admission) Type() string { return "rule" }
