package ringo

import (
	"errors"
	"fmt"
	"math"
	"os"
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

// Config places a rank in its job. The zero value takes the place that the launcher assigned, or,
// without one, is a job of one rank. Variables that place a process only in part, such as
// WORLD_SIZE=2 alone, are an error.
type Config struct {
	// Size, when above 0, places a rank by hand, without a launcher: it is the
	// world size. 0 takes the launcher's variables. The ticket is always taken
	// from RINGO_TICKET.
	Size int
	// Lookup finds the variables of a launcher, and RINGO_TICKET, for a program that has them from elsewhere than its
	// environment. nil: os.LookupEnv.
	Lookup func(name string) (value string, found bool)
	// Rank is this rank when Size is given, from 0 to Size-1; of Serve the server's
	// number, from 0 to Servers-1.
	Rank int
	// Servers is how many servers the job has beside its ranks, which sum gradients
	// for them: see Job.Reducer and Serve. 0 with a launcher: as many as it says,
	// and another number must agree with it.
	Servers int
	// Aggregate says how the servers that sum gradients and their clients work.
	// Trainers is left 0: it is Size.
	Aggregate aggregate.Config
	// ParameterServers are the addresses of the job's servers of tables, HOST:PORT each, by number,
	// the same on all ranks: see Job.DialParameterServers. Empty: those that a launcher started.
	ParameterServers []string
	// Heters are those of its heter-trainers, likewise: see Job.Heters.
	Heters []string
	// HeterTrainer says that Size places a heter-trainer by hand, and no rank: Rank is its number among Heters, where it listens at its
	// own place. Without Size a launcher says so, or by hand RINGO_HETER_INDEX, RINGO_HETER_ADDRS, RINGO_WORLD_SIZE and a ticket.
	HeterTrainer bool
	// ServersOnly makes no connections among ranks: they meet at the job's servers of tables alone,
	// and go on when one of them is lost, if the servers do. What is said of connections
	// among ranks has no effect then. A launcher must be told, too.
	ServersOnly bool
	// Rendezvous is the HOST:PORT where rank 0 listens when Size is given; or the absolute path of a file on a folder that all ranks
	// have, in which rank 0 posts where it listens; or etcd://HOST:PORT/KEY, a key of etcd in which it does (etcds:// under TLS; module
	// cluster/rendezvous/etcd). A file has the job's ticket, too, where nobody is given one.
	Rendezvous string
	// OpenBackend opens a Rendezvous that is no address, such as Open of that module. nil:
	// rendezvous.Open, and of etcd, too, in a program that was built with that module's overlay.
	OpenBackend func(rendezvous string) (rendezvous.Backend, error)
	// TicketFile is a file with the job's ticket, which only its owner may read. Empty: RINGO_TICKET has it, or the file that
	// RINGO_TICKET_FILE names. It needs Size.
	TicketFile string
	// Times are how long ranks wait for each other: at the start, and for signs of life. All ranks and their launcher
	// should have the same.
	Times cluster.Times
	// Transport is TransportSHM or TransportTCP, the same on every rank. Empty:
	// what RINGO_TRANSPORT says, or else TransportSHM.
	Transport string
	// Bind says whether this rank binds itself to processors, where no launcher has started it: a launcher does that for its
	// ranks. Empty: what RINGO_BIND says, or else launch.BindAuto. It knows how many ranks its machine has, and
	// all should be told the same. See Job.Placement.
	Bind launch.Bind
	// Threads is how many threads compute in this rank, by which it is decided whether ranks fit the processors. 0: what
	// GOMAXPROCS says in the environment, or else one.
	Threads int
	// Network says how ranks of different processes are connected.
	Network Network
	// Collective says how ranks agree. Hosts, if empty, is what the ranks find out
	// about themselves; Ranks and ID are left out.
	Collective collective.Config
	// Metrics is where this rank keeps its figures, for who answers for the ranks of the host
	// (package internal/watch/metrics/scrape). nil: where a launcher says so, in RINGO_METRICS, or
	// nowhere.
	Metrics *metrics.Dir
	// BlackBox is the folder in which a process that no launcher has started records what it does, in a file that stays there if the
	// process is killed or its job fails: `ringo blackbox FILE...` merges those of a host. "": it is in memory alone. A launcher has
	// a folder of its own.
	BlackBox string
	// Settings are what this process was told of the job, by path: of those that all processes must agree on. Where others
	// were told otherwise, ranks and servers, the job ends with an error that names the setting, both processes
	// and both values (*setting.ConflictError). What only one process names is not compared. nil: nothing is.
	Settings setting.Values
	// Report, if set, is told in one line about strangers that this rank refused,
	// and, on the rank that coordinates a job started by hand, about ranks that are
	// slow or cannot share memory. A launcher tells of these itself.
	Report func(line string)

	serves bool // it places a server
}

// What processes talk over.
const (
	// TransportSHM: memory that the ranks of one host share, and TCP beside it,
	// also in its place where there is none: see Job.Fallback.
	TransportSHM = "shm"
	// TransportTCP: connections alone.
	TransportTCP = "tcp"
)

const pathRendezvous setting.Path = "job.rendezvous"

// Validate reports every fault of c at once.
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
		set(c.Size == 0, "job.ranks", "is missing: a heter-trainer that is placed by hand waits for so many")
		fault(c.serves || c.Servers > 0, "a heter-trainer of a job with servers that sum: its parameters lie on servers that keep them")
		errs = append(errs, c.validateHeter()...)
	} else if c.serves {
		fault(c.Size > 0 && (c.Rank < 0 || c.Rank >= c.Servers), "server %d: want 0 to %d, since there are %d", c.Rank, c.Servers-1, c.Servers)
	} else {
		set(c.Size > 0 && (c.Rank < 0 || c.Rank >= c.Size), "job.rank", "%d: want 0 to %d, since %v is %d", c.Rank, c.Size-1, setting.Path("job.ranks"), c.Size)
	}
	fault(c.ServersOnly && (c.Servers > 0 || c.serves), "%d servers that sum gradients: ranks without a mesh (ServersOnly) reach servers that keep parameters, and no others", c.Servers)
	set(c.ServersOnly && c.Rendezvous != "", pathRendezvous, "%q has no effect: ranks without a mesh (ServersOnly) meet at servers that keep parameters", c.Rendezvous)
	set(c.ServersOnly && !c.HeterTrainer && c.Size > 0 && len(c.ParameterServers) == 0, "ps.addresses", "are missing: ranks without a mesh (ServersOnly) meet at servers that keep parameters")
	set(c.Size == 0 && c.TicketFile != "", "job.ticket-file", "%q is for a rank that is placed by hand, which needs %v, too", c.TicketFile, setting.Path("job.ranks"))
	if c.Size > 0 && !c.ServersOnly && !c.HeterTrainer && !rendezvous.IsBackend(c.Rendezvous) {
		_, _, err := hostport.Split(c.Rendezvous, 1)
		set(err != nil, pathRendezvous, "%q: %w, where rank 0 listens, or the absolute path of a file, or etcd://HOST:PORT/KEY, in which it says so", c.Rendezvous, err)
	}
	set(c.Size == 0 && c.Rank != 0, "job.rank", "%d places a rank by hand, which needs %v, too", c.Rank, setting.Path("job.ranks"))
	set(c.Size == 0 && c.Rendezvous != "", pathRendezvous, "%q places a rank by hand, which needs %v, too", c.Rendezvous, setting.Path("job.ranks"))
	for i, addr := range c.ParameterServers {
		_, _, err := hostport.Split(addr, 1)
		set(err != nil, "ps.addresses", "%q of server %d: %w", addr, i, err)
	}
	set(c.Transport != "" && c.Transport != TransportSHM && c.Transport != TransportTCP,
		"job.transport", "%q is not known: use %s, %s or nothing", c.Transport, TransportSHM, TransportTCP)
	set(!validBind(c.Bind), "job.bind", "%q is not known: use one of %v, or nothing", c.Bind, launch.Binds())
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
	fault(len(c.Collective.Ranks) > 0, "collective: ranks %v: a job's group is all of its ranks: leave them out, and make one of some with Job.Subgroup", c.Collective.Ranks)
	fault(c.Collective.ID != 0, "collective: id %d: leave it out, a job's groups have their own", c.Collective.ID)
	if err := c.Collective.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// aggregation is Aggregate for a job of so many ranks.
func (c Config) aggregation(ranks int) aggregate.Config {
	c.Aggregate.Trainers = ranks
	if c.Aggregate.Timeout == 0 {
		c.Aggregate.Timeout = c.Collective.Timeout
	}
	return c.Aggregate
}

// lookup is Lookup, or the environment.
func (c Config) lookup() func(string) (string, bool) {
	if c.Lookup != nil {
		return c.Lookup
	}
	return os.LookupEnv
}

// rankEnv finds this rank's place in its job; present is false in none.
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
			err = fmt.Errorf("this process is server %d of its job and trains nothing: it is to call ringo.Serve, as `ringo server` does", env.Rank-env.WorldSize)
		}
		return env, present, err
	}
	env, present, err = launch.RankFromEnv(c.byHand(lookup))
	if other, _, is, err := launch.FromExternal(lookup, c.Size, c.Rendezvous); is && err == nil && !c.serves && other.Rank == env.Rank && other.WorldSize == env.WorldSize {
		env.Job, env.OneHost = other.Job, other.OneHost // whoever has placed it by hand has read them
	}
	return env, present, err
}

// fromExternal is the place that another launcher says.
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

// byHand returns the lookup of the launcher's variables in which this place
// comes before that of a launcher.
func (c Config) byHand(lookup func(string) (string, bool)) func(string) (string, bool) {
	rank, role := c.Rank, ""
	if c.serves {
		rank, role = c.Size+c.Rank, "server"
	}
	mine := map[string]string{
		launch.RoleVar:        role,
		launch.ServersVar:     strconv.Itoa(c.Servers),
		launch.RankVar:        strconv.Itoa(rank),
		launch.LocalRankVar:   "0",
		launch.WorldSizeVar:   strconv.Itoa(c.Size),
		launch.RendezvousVar:  c.Rendezvous,
		launch.CoordinatorVar: "", // rank 0
		launch.EndVar:         "",
		launch.MetricsVar:     "",
		launch.RecordVar:      "",
	}
	if c.TicketFile != "" {
		mine[launch.TicketFileVar], mine[launch.TicketVar] = c.TicketFile, ""
	}
	if len(c.ParameterServers) > 0 {
		mine[launch.ParameterServersVar] = strings.Join(c.ParameterServers, ",")
	}
	return func(name string) (string, bool) {
		if v, ok := mine[name]; ok {
			return v, true
		}
		return lookup(name)
	}
}
