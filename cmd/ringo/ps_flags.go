package main

import (
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/ps/store"
	"github.com/ringo-ml/ringo/ps/tables"
	"github.com/ringo-ml/ringo/train"
)

// defaultGeoSteps keeps the model near sync's and spares most of the traffic.
const defaultGeoSteps = 8

// What servers do, besides what they keep.
const psSum = "sum"

// psFlags say what servers are for, and how they keep parameters.
type psFlags struct {
	mode       string // sum, or a consistency
	staleness  int
	geoSteps   int
	threads    int    // of a rank that train at once
	values     string // how they travel
	durability string
	fsync      bool
	dir        string
	memory     byteSize
	disk       byteSize
	store      string // how rows lie there
	restarts   int
	lost       string   // what a lost rank means
	addrs      []string // where servers of tables listen, started by hand
	click      clickSettings
	verbose    bool
	keep       keepFlags
	whole      wholeFlags
}

// psFlagNames are those that servers of tables take over.
var psFlagNames = append([]string{"ps-mode", "staleness", "trainer-threads", "durability", "fsync", "ps-dir", "ps-memory", "ps-disk", "ps-store", "ps-lost", "verbose"}, keepFlagNames...)

// tableFlags tells which flags of other commands a server of tables takes over.
func (f *psFlags) tableFlags(name string) bool {
	return oneOf(name, psFlagNames...) || oneOf(name, lostTimes...)
}

// registerTables registers what servers of tables are told.
func (f *psFlags) registerTables(fs *pflag.FlagSet) {
	fs.StringVar(&f.mode, "ps-mode", psSum, "what servers do: sum (gradients; parameters stay with the ranks), or keep the parameters and update them: sync (as if the ranks summed), async (as gradients come), geo (ranks update copies of their own and exchange by how much they moved every --geo-steps) or ssp (async, but no rank is more than --staleness steps ahead)")
	fs.IntVar(&f.staleness, "staleness", 0, "`steps` that a rank may be ahead of the slowest, with --ps-mode ssp")
	fs.IntVar(&f.threads, "trainer-threads", 1, "`threads` of each rank that train at once, each on batches of its own, with servers that keep parameters out of step; they share --threads")
	fs.StringVar(&f.durability, "durability", string(tables.None), "what survives the end of a server that keeps parameters: none, checkpoint (what the last one held, see --ps-save-every) or wal (all that it has acknowledged)")
	fs.BoolVar(&f.fsync, "fsync", false, "with --durability wal: loss of power, too; each group of changes waits for the disk")
	fs.StringVar(&f.dir, "ps-dir", "", "`DIR` of servers that keep parameters, one folder each, for --durability and --ps-memory; with --checkpoint they are in that folder")
	fs.Var(&f.memory, "ps-memory", "`SIZE` of the rows that each server that keeps parameters has in memory, such as 4GiB; what is used least goes to --ps-dir, which should be on an SSD. 0: all rows")
	f.registerLost(fs)
	fs.Var(&f.disk, "ps-disk", "`SIZE` that rows in each server's --ps-dir never exceed, with --ps-memory. 0: any")
	fs.StringVar(&f.store, "ps-store", string(store.KindSegments), storeUsage)
	fs.BoolVar(&f.verbose, "verbose", false, "tell more: every connection to servers that keep parameters, not only those that come back")
	f.keep.register(fs)
}

// storeUsage says how rows below memory are kept.
const storeUsage = "how rows that --ps-memory has no room for are kept: segments (fast; 10 bytes of memory for each) or lsm (2 bytes, several times the work)"

// checkStore reports a store that does not exist, is for nothing, or too small.
func checkStore(kind string, changed bool, memory, disk byteSize, faults *faultList) {
	if !oneOf(kind, string(store.KindSegments), string(store.KindLSM)) {
		faults.add("--ps-store %q is not known%s: use %s or %s", kind, spelling.Hint(string(kind), string(store.KindSegments), string(store.KindLSM)), store.KindSegments, store.KindLSM)
	} else if changed && memory == 0 {
		faults.add("--ps-store %s has no effect without --ps-memory", kind)
	}
	if disk > 0 && memory == 0 {
		faults.add("--ps-disk %s has no effect without --ps-memory", disk.String())
	} else if least := byteSize(store.MinLimitBytes); disk > 0 && disk < least {
		faults.add("--ps-disk %s: want at least %s, or 0 for no limit", disk.String(), least.String())
	}
}

// registerRanks registers what ranks are told besides.
func (f *psFlags) registerRanks(fs *pflag.FlagSet) {
	f.registerTables(fs)
	fs.IntVar(&f.geoSteps, "geo-steps", defaultGeoSteps, "`steps` after which ranks exchange, with --ps-mode geo")
	fs.StringVar(&f.values, "ps-values", "fp32", "how values travel to and from servers that keep parameters: fp32, fp16, bf16, or int8 (gradients of rows in 8 bits, all else fp16)")
	f.registerRestarts(fs)
	fs.Var(&f.click, "ps-click", "`NAME=X,…`: settings of --optimizer click: rate (rows learn at so many times --lr; 5), initial (3), bound (10), no_click and click (what a show is worth; 0.1 and 1), extend_at (10), decay (0.98 a day), delete_below (0.8), delete_after (30 days unseen), cold_after (1)")
	fs.StringSliceVar(&f.addrs, "ps-addrs", nil, "`HOST:PORT,…` of the servers that keep parameters, for ranks and servers started by hand")
	f.whole.registerRank(fs)
}

// registerRestarts registers what launchers of servers are told.
func (f *psFlags) registerRestarts(fs *pflag.FlagSet) {
	fs.IntVar(&f.restarts, "ps-restarts", 0, "how often each server that keeps parameters is started again when it is lost")
}

// launched makes n servers that keep parameters part of a job.
func (f *psFlags) launched(cfg *launch.Config, n int, command []string) {
	servers := launch.ParameterServers(n, command...)
	servers.Restarts, servers.Grace = f.restarts, f.tableGrace()
	cfg.Roles[0].Mesh, cfg.Roles[0].Spare = !f.goesOn(), f.goesOn()
	cfg.Roles = append(cfg.Roles, servers)
}

// consistencies are what servers may do that keep parameters.
func consistencies() []string { return []string{"sync", "async", "geo", "ssp"} }

// keeps says that servers keep parameters.
func (f *psFlags) keeps() bool { return f.mode != "" && f.mode != psSum }

// consistency is the mode by its name in the libraries.
func (f *psFlags) consistency() string {
	if f.mode == "sync" {
		return string(tables.BSP)
	}
	return f.mode
}

// hold keeps the program in memory where rows are read from SSD.
func (f *psFlags) hold() {
	if f.memory > 0 {
		_ = holdProgram()
	}
}

// training is what training is told.
func (f *psFlags) training() train.Servers {
	s := train.Defaults("", "").Servers
	if !f.keeps() {
		return s
	}
	s.Consistency = f.consistency()
	s.Staleness, s.GeoSteps, s.Threads, s.Values, s.Click, s.Start = f.staleness, f.geoSteps, f.threads, f.values, f.click, f.whole.start
	return s
}

// check reports faults of the flags; which of them were given is for changed to say.
func (f *psFlags) check(cmd *cobra.Command, mode string, faults *faultList) {
	changed := cmd.Flags().Changed
	modes := append([]string{psSum}, consistencies()...)
	switch {
	case !slices.Contains(modes, f.mode):
		faults.add("--ps-mode %q is not known%s: use one of %s", f.mode, spelling.Hint(f.mode, modes...), strings.Join(modes, ", "))
	case changed("ps-mode") && mode != modePS:
		faults.add("--ps-mode %s has no effect without --mode ps", f.mode)
	case !f.keeps():
		for _, name := range append(psFlagNames[1:], "geo-steps", "ps-values", "ps-click", "ps-restarts", "ps-addrs") {
			if cmd.Flags().Lookup(name) != nil && changed(name) {
				faults.add("--%s has no effect with --ps-mode sum: servers keep nothing", name)
			}
		}
	}
	if f.staleness < 0 || f.staleness > 0 && f.mode != string(tables.SSP) {
		faults.add("--staleness %d: want 0 or more, and --ps-mode ssp", f.staleness)
	}
	if changed("geo-steps") && f.keeps() && f.mode != string(tables.Geo) {
		faults.add("--geo-steps %d has no effect with --ps-mode %s", f.geoSteps, f.mode)
	}
	if f.threads < 1 {
		faults.add("--trainer-threads %d: want at least 1", f.threads)
	}
	if !oneOf(f.durability, string(tables.None), string(tables.Checkpoint), string(tables.WAL)) {
		faults.add("--durability %q is not known%s: use none, checkpoint or wal", f.durability, spelling.Hint(f.durability, "none", "checkpoint", "wal"))
	} else if needed := f.durability != string(tables.None) || f.memory > 0 || f.whole.job != ""; f.whole.dir == "" && needed != (f.dir != "") {
		faults.add("--durability %s and --ps-memory %s with --ps-dir %q: a folder is needed for checkpoint, wal and a limit of memory, and for them alone", f.durability, f.memory.String(), f.dir)
	}
	checkStore(f.store, changed("ps-store"), f.memory, f.disk, faults)
	if f.fsync && f.durability != string(tables.WAL) {
		faults.add("--fsync is for --durability wal")
	}
	f.checkLost(faults)
	if f.restarts < 0 {
		faults.add("--ps-restarts %d: want at least 0", f.restarts)
	} else if f.restarts > 0 && f.keeps() && f.durability != string(tables.WAL) {
		faults.add("--ps-restarts %d needs --durability wal: a server that is started again would have lost what it acknowledged", f.restarts)
	}
	for _, a := range f.addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			faults.add("--ps-addrs: %q: want HOST:PORT", a)
		}
	}
}

// checkKeepers reports how a rank's place does not fit servers that keep parameters, and makes
// the servers of the command line such.
func (f *jobFlags) checkKeepers(cmd *cobra.Command, faults *faultList) {
	if !f.ps.keeps() {
		return
	}
	f.keepers, f.summers = f.servers, 0
	checkBeat(f.heartbeat, faults)
	f.ps.keep.check(f.ps.durability, f.ps.dir, f.keepers-1, faults)
	f.ps.keep.checkDays(cmd.Flags().Lookup("optimizer").Value.String() == train.OptimizerClick, faults)
	if f.byHand {
		f.ps.checkByHand(cmd.Flags().Changed, faults)
	}
	switch {
	case f.inProcess():
		faults.add("--ps-mode %s needs ranks that are processes: leave --transport mem out", f.ps.mode)
	case f.byHand && len(f.ps.addrs) != f.keepers:
		faults.add("--servers %d, but --ps-addrs has %d addresses: ranks started by hand need those of all servers", f.keepers, len(f.ps.addrs))
	case !f.byHand && !f.worker && len(f.ps.addrs) > 0:
		faults.add("--ps-addrs is for ranks started by hand: give --rank too")
	}
}
