package ringo

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
)

// Config assigns a rank its place in a job: its number, the number of ranks, and addresses. With
// the zero value the launcher (`ringo run`) assigns the place; without a launcher, the job has one
// rank. If only some of a launcher's variables are set, such as WORLD_SIZE=2 alone, Join returns an
// error.
type Config struct {
	// Size, above 0, is the number of ranks of the job, for a rank without a launcher. 0 means the
	// launcher's variables. The ticket, the job's secret, always comes from RINGO_TICKET.
	Size int
	// Lookup returns the value of an environment variable, for a program that has launcher
	// variables and RINGO_TICKET in another place. nil means os.LookupEnv.
	Lookup func(name string) (value string, found bool)
	// Rank is the rank's number, from 0 to Size-1, if Size is given. In Serve, Rank is the server's
	// number, from 0 to Servers-1.
	Rank int
	// Servers is the number of aggregation servers, processes that sum gradients: see Job.Reducer
	// and Serve. 0 means the launcher's number; any other value must equal that number.
	Servers int
	// Aggregate configures the aggregation servers and their clients. Aggregate.Trainers must be 0:
	// the job sets that field to the number of ranks.
	Aggregate aggregate.Config
	// ParameterServers are the addresses of the job's parameter servers, processes that store
	// parameters: HOST:PORT each, by number, equal on all ranks. See Job.DialParameterServers.
	// Empty means the servers of the launcher.
	ParameterServers []string
	// Heters are the addresses, by number, of the job's heter-trainers: processes that compute a
	// part of the model for the ranks. See Job.Heters. Empty means those of the launcher.
	Heters []string
	// HeterTrainer makes a process a heter-trainer instead of a rank. With Size above 0, Rank is
	// then this process's index in Heters, and the process listens at that address. With Size 0 the
	// launcher decides, or a ticket and RINGO_HETER_INDEX, RINGO_HETER_ADDRS and RINGO_WORLD_SIZE.
	HeterTrainer bool
	// ServersOnly disables connections between ranks: the ranks exchange data through the job's
	// parameter servers alone. The job then continues without a lost rank if the servers are
	// configured to continue. Settings of connections between ranks have no effect. A launcher
	// needs the same setting.
	ServersOnly bool
	// Rendezvous, needed with Size, is the place where ranks find rank 0. It is rank 0's listen
	// address, HOST:PORT, or the name under which rank 0 publishes its address: a file, by absolute
	// path in a folder that all ranks share, or a key of etcd, etcd://HOST:PORT/KEY (etcds:// with
	// TLS; module modules/etcd). The file also has the job's ticket if no rank has one.
	Rendezvous string
	// OpenBackend opens a Rendezvous that is not an address, such as Open of module modules/etcd.
	// nil means files; a program built with the overlay of modules/etcd also opens etcd.
	OpenBackend func(rendezvous string) (rendezvous.Backend, error)
	// TicketFile is a file with the job's ticket (secret) that only its owner can read. Empty means
	// RINGO_TICKET, or the file in RINGO_TICKET_FILE. TicketFile needs Size.
	TicketFile string
	// Times are the maximum waits for other ranks, at the start and for heartbeats. All ranks and
	// their launcher should have equal Times.
	Times cluster.Times
	// Transport is TransportSHM or TransportTCP, equal on all ranks. Empty: RINGO_TRANSPORT, or
	// TransportSHM.
	Transport string
	// Bind selects whether a rank that has no launcher binds itself to CPUs. With a launcher, the
	// launcher binds its ranks. Empty means RINGO_BIND, or else launch.BindAuto. All ranks of a
	// host should have the same value. See Job.Placement.
	Bind launch.Bind
	// Threads is the number of compute threads of this rank. The ranks of a host compare the sum of
	// their Threads with the number of CPUs to decide whether each rank gets separate CPUs. 0 means
	// GOMAXPROCS of the environment, or else 1.
	Threads int
	// Network configures the connections between ranks of different processes.
	Network Network
	// Collective configures the group of all ranks. Empty Hosts means the hosts that the ranks
	// detect. An empty Algorithm, or auto, means RINGO_COLLECTIVE_ALGORITHM; any other value must
	// equal that variable. Collective.Ranks and Collective.ID must be empty.
	Collective collective.Config
	// Metrics is the folder of this rank's metrics, read by the host's metrics server (package
	// internal/watch/metrics/scrape). nil means RINGO_METRICS, or else no metrics.
	Metrics *metrics.Dir
	// BlackBox is the folder of the record file of a process without a launcher; the record lists
	// the process's operations and errors. The file remains if the process is killed or its job
	// fails: `ringo blackbox FILE...` merges the files of a host. Empty means a record in memory
	// only. With a launcher BlackBox has no effect.
	BlackBox string
	// Settings are this process's values, by path such as `training.batch`, of settings that must
	// be equal in all processes. If a rank or a server has another value, the job ends with a
	// *setting.ConflictError: it has the setting, both processes and both values. Paths that only
	// one process has are not compared.
	Settings setting.Values
	// Report, if not nil, receives one line per rejected connection. On the coordinator (rank 0) of
	// a job without a launcher it also receives one line per rank that is slow or cannot share
	// memory. A launcher prints these lines instead.
	Report func(line string)

	serves bool // the process is an aggregation server
}

// Values of Config.Transport.
const (
	// TransportSHM is memory shared by the ranks of a host, with TCP for other ranks and for ranks
	// that cannot share memory: see Job.Fallback.
	TransportSHM = "shm"
	// TransportTCP is TCP alone.
	TransportTCP = "tcp"
)

const pathRendezvous setting.Path = "job.rendezvous"

// Validate returns all errors of c together.
func (c Config) Validate() error {
	var errs []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	set := func(wrong bool, p setting.Path, format string, args ...any) {
		if wrong {
			errs = append(errs, setting.Errorf(p, format, args...))
		}
	}
	set(c.Servers < 0, "servers.count", "%d: want at least 0", c.Servers)
	fault(c.Aggregate.Trainers != 0, "trainers %d: leave it out, it is the job's size", c.Aggregate.Trainers)
	if err := c.aggregation(1).Validate(); err != nil {
		errs = append(errs, err)
	}
	set(c.Size < 0, "job.ranks", "%d: want the number of ranks, or 0 for the launcher's", c.Size)
	if c.HeterTrainer {
		set(c.Size == 0, "job.ranks", "is missing: a heter-trainer started by hand needs the number of trainers")
		fault(c.serves || c.Servers > 0, "a heter-trainer of a job with aggregation servers: it needs parameter servers")
		errs = append(errs, c.validateHeter()...)
	} else if c.serves {
		fault(c.Size > 0 && (c.Rank < 0 || c.Rank >= c.Servers), "server %d: want 0 to %d, the job has %d servers", c.Rank, c.Servers-1, c.Servers)
	} else {
		set(c.Size > 0 && (c.Rank < 0 || c.Rank >= c.Size), "job.rank", "%d: want 0 to %d, since %v is %d", c.Rank, c.Size-1, setting.Path("job.ranks"), c.Size)
	}
	fault(c.ServersOnly && (c.Servers > 0 || c.serves), "%d aggregation servers: ranks without a mesh (ServersOnly) can use only parameter servers", c.Servers)
	set(c.ServersOnly && c.Rendezvous != "", pathRendezvous, "%q has no effect: ranks without a mesh (ServersOnly) meet at parameter servers", c.Rendezvous)
	set(c.ServersOnly && !c.HeterTrainer && c.Size > 0 && len(c.ParameterServers) == 0, "ps.addresses", "are missing: ranks without a mesh (ServersOnly) meet at parameter servers")
	set(c.Size == 0 && c.TicketFile != "", "job.ticket-file", "%q is for a rank started by hand, which also needs %v", c.TicketFile, setting.Path("job.ranks"))
	if c.Size > 0 && !c.ServersOnly && !c.HeterTrainer && !rendezvous.IsBackend(c.Rendezvous) {
		_, _, err := hostport.Split(c.Rendezvous, 1)
		set(err != nil, pathRendezvous, "%q: %w, where rank 0 listens, or the absolute path of a file, or etcd://HOST:PORT/KEY, in which it says so", c.Rendezvous, err)
	}
	set(c.Size == 0 && c.Rank != 0, "job.rank", "%d is for a rank started by hand, which also needs %v", c.Rank, setting.Path("job.ranks"))
	set(c.Size == 0 && c.Rendezvous != "", pathRendezvous, "%q is for a rank started by hand, which also needs %v", c.Rendezvous, setting.Path("job.ranks"))
	for i, addr := range c.ParameterServers {
		_, _, err := hostport.Split(addr, 1)
		set(err != nil, "ps.addresses", "%q of server %d: %w", addr, i, err)
	}
	set(c.Transport != "" && c.Transport != TransportSHM && c.Transport != TransportTCP,
		"job.transport", "%q is not known: use %s, %s or nothing", c.Transport, TransportSHM, TransportTCP)
	set(c.Bind != "" && !slices.Contains(launch.Binds(), c.Bind), "job.bind", "%q is not known: use one of %v, or nothing", c.Bind, launch.Binds())
	set(c.Threads < 0 || c.Threads > math.MaxUint16, "training.threads", "%d: want 1 to %d, or 0", c.Threads, math.MaxUint16)
	if err := c.Times.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Settings.Check(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Network.Validate(); err != nil {
		errs = append(errs, err)
	}
	fault(len(c.Collective.Ranks) > 0, "collective: ranks %v: a job's group has all ranks: remove the ranks, and use Job.Subgroup for a part of them", c.Collective.Ranks)
	fault(c.Collective.ID != 0, "collective: id %d: leave it out, a job's groups have their own", c.Collective.ID)
	if err := c.Collective.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// aggregation returns c.Aggregate, with the number of ranks set.
func (c Config) aggregation(ranks int) aggregate.Config {
	c.Aggregate.Trainers = ranks
	if c.Aggregate.Timeout == 0 {
		c.Aggregate.Timeout = c.Collective.Timeout
	}
	return c.Aggregate
}

// lookup returns c.Lookup, or os.LookupEnv if c.Lookup is nil.
func (c Config) lookup() func(string) (string, bool) {
	if c.Lookup != nil {
		return c.Lookup
	}
	return os.LookupEnv
}

// rankEnv returns this rank's place in the job: its number, the number of ranks and addresses.
// present is false if neither a launcher nor c assigns a place.
func (c Config) rankEnv(lookup func(string) (string, bool)) (env launch.RankEnv, present bool, err error) {
	if err := c.Validate(); err != nil {
		return env, false, err
	}
	if c.Size == 0 {
		if env, present, err = launch.RankFromEnv(lookup); !present && err == nil && !c.ServersOnly && !c.serves && c.Servers == 0 {
			env, present, err = c.fromExternal(lookup)
		}
		switch {
		case err != nil:
		case !present && (c.serves || c.Servers > 0):
			err = fmt.Errorf("%s is not set: a job with servers needs a launcher, or its size", launch.RankVar)
		case present && c.ServersOnly && len(env.Tables) == 0:
			err = fmt.Errorf("%s is not set: ranks without a mesh (ServersOnly) need servers of tables", launch.ParameterServersVar)
		case present && !c.ServersOnly && env.Rendezvous == "":
			err = fmt.Errorf("%s is not set, so the launcher started ranks without a mesh: set Config.ServersOnly", launch.RendezvousVar)
		case !present && c.ServersOnly:
			err = fmt.Errorf("%s is not set: ranks without a mesh (ServersOnly) need a launcher, or Size and Rank", launch.RankVar)
		case present && c.Servers > 0 && c.Servers != env.Servers:
			err = fmt.Errorf("servers %d, but %s is %d", c.Servers, launch.ServersVar, env.Servers)
		case present && c.serves != env.Serves() && c.serves:
			err = fmt.Errorf("%s=%d is a rank that trains: a server has a number from %s=%d on", launch.RankVar, env.Rank, launch.WorldSizeVar, env.WorldSize)
		case present && c.serves != env.Serves():
			err = fmt.Errorf("this process is server %d of its job, not a rank: call ringo.Serve instead, as `ringo server` does", env.Rank-env.WorldSize)
		}
		return env, present, err
	}
	env, present, err = launch.RankFromEnv(c.byHand(lookup))
	if other, _, is, err := launch.FromExternal(lookup, c.Size, c.Rendezvous); is && err == nil && !c.serves && other.Rank == env.Rank && other.WorldSize == env.WorldSize {
		env.Job, env.OneHost = other.Job, other.OneHost // the caller has read the same variables
	}
	return env, present, err
}

// fromExternal returns the place that another launcher, such as torchrun or mpirun, has assigned.
func (c Config) fromExternal(lookup func(string) (string, bool)) (launch.RankEnv, bool, error) {
	env, place, present, err := launch.FromExternal(lookup, 0, "")
	if present && err == nil && place.Each > 1 {
		err = &launch.SeveralRanksError{Place: place}
	}
	if present && err == nil && env.Rank == 0 && c.Report != nil {
		c.Report(fmt.Sprintf("%s placed by %v", quantity.Count(env.WorldSize, "rank"), place))
	}
	return env, present, err
}

// takeAlgorithm sets the collective algorithm named by a launcher's variable. Errors: the name is
// unknown, or the program sets another algorithm.
func (c *Config) takeAlgorithm(name string) error {
	own := &c.Collective.Algorithm
	if name == "" {
		return nil
	}
	if err := (collective.Config{Algorithm: name}).Validate(); err != nil {
		return fmt.Errorf("%s=%s: want one of %s, %s", launch.AlgorithmVar, name, collective.Auto, strings.Join(collective.Algorithms(), ", "))
	}
	if *own != "" && *own != collective.Auto && *own != name {
		return fmt.Errorf("%s=%s, but the program sets %s: remove one of the two", launch.AlgorithmVar, name, *own)
	}
	*own = name
	return nil
}

// byHand returns a copy of lookup that returns c's values for the variables of the rank's place.
func (c Config) byHand(lookup func(string) (string, bool)) func(string) (string, bool) {
	rank, role := c.Rank, ""
	if c.serves {
		rank, role = c.Size+c.Rank, "server"
	}
	values := map[string]string{
		launch.RoleVar:        role,
		launch.ServersVar:     strconv.Itoa(c.Servers),
		launch.RankVar:        strconv.Itoa(rank),
		launch.LocalRankVar:   "0",
		launch.WorldSizeVar:   strconv.Itoa(c.Size),
		launch.RendezvousVar:  c.Rendezvous,
		launch.CoordinatorVar: "", // rank 0
		launch.ExitFDVar:      "",
		launch.MetricsVar:     "",
		launch.RecordFDVar:    "",
	}
	if c.TicketFile != "" {
		values[launch.TicketFileVar], values[launch.TicketVar] = c.TicketFile, ""
	}
	if len(c.ParameterServers) > 0 {
		values[launch.ParameterServersVar] = strings.Join(c.ParameterServers, ",")
	}
	return func(name string) (string, bool) {
		if v, ok := values[name]; ok {
			return v, true
		}
		return lookup(name)
	}
}
