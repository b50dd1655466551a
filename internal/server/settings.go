package server

import (
	"cmp"
	"net"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Settings that several rows or errors name.
const (
	pathDir         setting.Path = "ps.dir"
	pathMemory      setting.Path = "ps.memory"
	pathDisk        setting.Path = "ps.disk"
	pathDurability  setting.Path = "ps.durability"
	pathSaveEvery   setting.Path = "ps.checkpoint-every"
	pathFrom        setting.Path = "ps.init-from"
	pathUnseen      setting.Path = "ps.delete-after-unseen-days"
	pathShrinkEvery setting.Path = "ps.shrink-every"
	pathHTTP        setting.Path = "output.http"
	pathOptimizer   setting.Path = "training.optimizer"
)

// ruleOfDays is the optimizer that decides how rows age and when they are deleted.
const ruleOfDays = "click"

// Defaults returns the default settings of servers.
func Defaults() Config {
	return Config{Durability: engine.None, OnLost: engine.FailJob}
}

// Settings returns the setting rows of parameter servers, bound to c.
func (c *Config) Settings() []setting.Row {
	return setting.For(setting.Run|setting.Server, slices.Concat(c.keeping(), c.joining(), c.aging())...)
}

// keeps returns the condition of all settings of parameter servers, with more conditions.
func keeps(more ...setting.Condition) setting.Condition {
	mode := setting.Equals("sync", string(engine.BSP), string(engine.SSP), string(engine.Async), string(engine.Geo))
	return setting.All(append([]setting.Condition{mode}, more...)...)
}

// keeping returns the rows about stored data.
func (c *Config) keeping() []setting.Row {
	return []setting.Row{
		{
			Path: pathDurability, Flag: "ps-durability", Scope: setting.JobMutable, Needs: keeps(),
			About: "state that survives the loss of a server: none, checkpoint (the server's last checkpoint), wal (a log of all changes that the server has acknowledged) or wal-fsync (also after a loss of power: each group of changes waits for the disk)",
			Value: setting.Choice(&c.Durability, engine.None, engine.Checkpoint, engine.WAL, engine.WALFsync),
		},
		{
			Path: pathDir, Flag: "ps-dir", Unit: "DIR", Scope: setting.PerProcess, Needs: keeps(setting.Any(setting.Enabled(pathDurability), setting.Enabled(pathMemory))),
			About: "parent folder of a folder per server for its log, its checkpoints and rows beyond its memory",
			Value: setting.Text(&c.Dir),
		},
		{
			Path: pathMemory, Flag: "ps-memory", Unit: "SIZE", Scope: setting.PerProcess, Needs: keeps(),
			About: "maximum memory of each server for rows, such as 4GiB; the least used rows go to its folder, which should be on an SSD; 0: all rows are in memory",
			Value: setting.Bytes(&c.MemoryBytes),
		},
		{
			Path: pathDisk, Unit: "SIZE", Scope: setting.PerProcess, Needs: keeps(setting.Enabled(pathMemory)),
			About: "maximum disk space of each server for rows beyond its memory, such as 100GiB; 0: no limit",
			Value: setting.Bytes(&c.DiskBytes),
		},
		{
			Path: pathSaveEvery, Unit: "TIME", Scope: setting.PerProcess, Needs: keeps(setting.Enabled(pathDurability)),
			About: "time between checkpoints of a server, such as 10m; 0: one at its end, and with a log also each time the log has grown as large as the tables",
			Value: setting.Duration(&c.SaveEvery),
		},
	}
}

// joining returns the rows about the start, lost ranks, and admission.
func (c *Config) joining() []setting.Row {
	return []setting.Row{
		{
			Path: pathFrom, OneStart: true, Unit: "DIR", Scope: setting.PerProcess, Needs: keeps(),
			About: "folder of an earlier job's servers, of any number; the newest checkpoints in it are the initial state, with the state of the optimizer",
			Value: setting.Text(&c.From),
		},
		{
			Path: "ps.failure-policy", Flag: "ps-failure-policy", Scope: setting.JobMutable, Needs: keeps(),
			About: "effect of a lost rank: fail (the job ends) or continue (the other ranks continue without it and its part of the training data; rank 0 cannot be lost)",
			Value: setting.Choice(&c.OnLost, engine.FailJob, engine.ContinueJob),
		},
		{
			Path: "ps.admission", Unit: "RULE", Scope: setting.JobMutable, Needs: keeps(),
			About: "rule for keys to get a row: count:3 (keys pulled 3 times), share:0.1 (a tenth of all keys, chosen by a hash), both with a comma between, or empty for all; other keys keep their first values; for single tables by name, such as count:3;wide=share:0.1",
			Value: setting.Textual(admitting{c}),
		},
	}
}

// aging returns the rows about the deletion of rows.
func (c *Config) aging() []setting.Row {
	return []setting.Row{
		{
			Path: pathUnseen, Unit: "DAYS", Scope: setting.JobMutable,
			Needs: keeps(setting.Any(setting.Enabled(pathShrinkEvery), setting.Enabled(pathHTTP)), setting.NotEquals(pathOptimizer, ruleOfDays)),
			About: "maximum days without a pull or push, above which a row is deleted; 0: no deletion",
			Value: setting.Int(&c.DeleteAfter),
		},
		{
			Path: pathShrinkEvery, Unit: "TIME", Scope: setting.JobMutable,
			Needs: keeps(setting.Any(setting.Enabled(pathUnseen), setting.Equals(pathOptimizer, ruleOfDays))),
			About: "duration that counts as a day, such as 24h: after each, rows age and some are deleted; 0: only by a server's command over HTTP",
			Value: setting.Duration(&c.ShrinkEvery),
		},
	}
}

// CheckSettings returns errors of the settings, like Validate, before the role is set.
func (c Config) CheckSettings() error {
	c.Mode, c.Trainers, c.Servers = cmp.Or(c.Mode, engine.BSP), max(1, c.Trainers), max(1, c.Servers)
	return c.check()
}

// faults returns errors of the settings, in addition to those of package engine.
func (c Config) faults() (bad setting.Faults) {
	memory, disk := setting.Bytes(&c.MemoryBytes), setting.Bytes(&c.DiskBytes)
	bad.Add(c.MemoryBytes < 0, pathMemory, "%v: want 0 or more", memory)
	bad.Add(c.MemoryBytes > 0 && c.Dir == "", pathDir, "is missing: with %v %v, rows beyond memory are stored in a folder", pathMemory, memory)
	bad.Add(c.DiskBytes < 0 || c.DiskBytes > 0 && c.DiskBytes < store.MinLimitBytes, pathDisk, "%v: want at least %d MiB, or 0 for no limit", disk, store.MinLimitBytes>>20)
	bad.Add(c.DiskBytes > 0 && c.MemoryBytes == 0, pathDisk, "%v has no effect without %v: all rows are in memory", disk, pathMemory)
	bad.Add(c.SaveEvery < 0, pathSaveEvery, "%v: want 0 or more", c.SaveEvery)
	bad.Add(c.SaveEvery > 0 && c.Durability == engine.None, pathSaveEvery, "%v has no effect with %v none: want checkpoint or wal", c.SaveEvery, pathDurability)
	bad.Add(c.From != "" && c.Dir != "" && filepath.Clean(c.From) == filepath.Clean(c.Dir), pathFrom, "and %v are both %q: the new job needs a separate folder", pathDir, c.Dir)
	bad.Add(c.DeleteAfter < 0, pathUnseen, "%d: want 0 or more days", c.DeleteAfter)
	bad.Add(c.ShrinkEvery < 0, pathShrinkEvery, "%v: want 0 or more, such as 24h", c.ShrinkEvery)
	err := c.Admission.Validate()
	bad.Add(err != nil, "ps.admission", "%w", err)
	for name, a := range c.TableAdmission {
		err := a.Validate()
		bad.Add(err != nil, "ps.admission", "table %s: %w", name, err)
	}
	return bad
}

func (c Config) httpAddress(index int) (string, *setting.Error) {
	host, n, err := hostport.Split(c.HTTP, 0)
	if err != nil {
		return "", setting.Errorf(pathHTTP, "%q: %w", c.HTTP, err)
	}
	if n > 0 {
		n += index
	}
	if n > 65535 {
		return "", setting.Errorf(pathHTTP, "%q: server %d would listen at port %d: want ports up to 65535", c.HTTP, index, n)
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), strconv.Itoa(n)), nil
}

// ListenHTTP listens at the address HTTP, if set, with the server's index added to the port, and
// stores the listener in Admin and the host of the address in AdminHost.
func (c *Config) ListenHTTP() error {
	if c.HTTP == "" {
		return nil
	}
	address, bad := c.httpAddress(c.Index)
	if bad != nil {
		return bad
	}
	var err error
	c.AdminHost, _, _ = net.SplitHostPort(address)
	if c.Admin, err = net.Listen("tcp", address); err != nil {
		return setting.Errorf(pathHTTP, "%s: cannot listen at %s: %w", c.HTTP, address, err)
	}
	return nil
}
