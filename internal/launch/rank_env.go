package launch

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/transport"
)

// The variables that place a process in its job.
const (
	RankVar             = "RINGO_RANK"        // this process's rank, from 0; servers have the numbers after those that train
	WorldSizeVar        = "RINGO_WORLD_SIZE"  // the number of ranks that train
	ServersVar          = "RINGO_SERVERS"     // the number of servers, or unset: none
	RoleVar             = "RINGO_ROLE"        // "trainer" or unset, or "server"
	LocalRankVar        = "RINGO_LOCAL_RANK"  // its number among those of its host
	RendezvousVar       = "RINGO_RENDEZVOUS"  // where the coordinator listens, HOST:PORT, or the absolute path of a file that says so; unset for ranks without a mesh
	TicketVar           = "RINGO_TICKET"      // the job's secret
	TicketFileVar       = "RINGO_TICKET_FILE" // in its place, the path of a file that has it, which only its owner may read
	CoordinatorVar      = "RINGO_COORDINATOR" // "launcher", or unset: rank 0 coordinates
	ColumnsVar          = "RINGO_COLUMNS"     // for rank 0, the width of the launcher's terminal
	TransportVar        = "RINGO_TRANSPORT"   // "shm" or "tcp", or unset: shm where ranks share a host
	BindVar             = "RINGO_BIND"        // "auto", "core" or "none", or unset: auto; for ranks that no launcher of ours has started
	PlacedVar           = "RINGO_PLACED"      // of a rank that a launcher has started: in words, on which processors ranks run
	ThreadsVar          = "GOMAXPROCS"        // Go's own: how many threads a person wants in each process, or unset
	ParameterServersVar = "RINGO_PS_ADDRS"    // where the servers that keep parameters listen, HOST:PORT,HOST:PORT,…, or unset: none; any role's is RINGO_ROLE_ADDRS, with its name for ROLE
	TableVar            = "RINGO_PS_INDEX"    // of a server that keeps parameters: its number, from 0; any role's is RINGO_ROLE_INDEX
	HetersVar           = "RINGO_HETER_ADDRS" // likewise, of heter-trainers
	HeterVar            = "RINGO_HETER_INDEX"
	SocketVar           = "RINGO_SOCKET"  // of a process of a role with sockets: the descriptor of its own
	MetricsVar          = "RINGO_METRICS" // the folder in which the ranks of this host have their figures, or unset: they keep none; see metrics.Open
	EndVar              = "RINGO_END"     // of a process outside the mesh: the descriptor to which it writes how it ended, and signs of life
	RecordVar           = "RINGO_RECORD"  // the descriptor of the memory in which the process records what it does, or unset: it has its own
	// JobVar holds the settings of the whole job, the same text for each of its processes, or is unset. It never
	// holds the ticket: see JobSpecFromEnv.
	JobVar = "RINGO_JOB"
	// AdminTokenVar is a secret that a person may choose, which orders by HTTP to servers that keep
	// parameters must show, or unset: one that servers make. Launchers hand it on.
	AdminTokenVar = "RINGO_PS_HTTP_TOKEN"
)

// leastOrders is how short the secret of AdminTokenVar may be.
const leastOrders = 16

// AdminTokenFromEnv reads the secret of AdminTokenVar; empty: there is none. The error does not
// show it.
func AdminTokenFromEnv(lookup func(string) (string, bool)) (string, error) {
	token, _ := lookup(AdminTokenVar)
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	if token != "" && (len(token) < leastOrders || strings.ContainsFunc(token, strange)) {
		return "", fmt.Errorf("%s has %d characters: want at least %d, without spaces, in ASCII, such as `openssl rand -hex 16` makes", AdminTokenVar, len(token), leastOrders)
	}
	return token, nil
}

// maxJob bounds Config.JobSpec: Linux gives one variable 128 KiB, with its name.
const maxJob = 127 << 10

// JobSpecFromEnv returns what the launcher was given as Config.JobSpec. Without a launcher, or
// where it was given nothing, present is false.
func JobSpecFromEnv(lookup func(string) (string, bool)) (text string, present bool) {
	text, _ = lookup(JobVar)
	return text, text != ""
}

const (
	launcher = "launcher" // the value of CoordinatorVar
	trainer  = "trainer"  // the values of RoleVar
	server   = "server"

	tables = "ps" // the name of the role that keeps the parameters

	// Heter is the name of the role of heter-trainers, of whose places RoleFromEnv tells.
	Heter = "heter"

	varPrefix, addrsSuffix, indexSuffix = "RINGO_", "_ADDRS", "_INDEX" // of variables about a role
)

// RankEnv is a process's place in its job: one of WorldSize ranks that train, or, with
// a Rank from WorldSize on, one of Servers.
type RankEnv struct {
	// Rank is the process's number in the mesh, from 0.
	Rank int
	// WorldSize is how many ranks train.
	WorldSize int
	// LocalRank is the process's number among those of its host.
	LocalRank int
	// Servers is how many servers the mesh has, which have the numbers after the ranks'.
	Servers int
	// Rendezvous is where the coordinator listens, HOST:PORT, or the absolute path of a file in which rank 0 posts that (package
	// internal/cluster/rendezvous). Ranks without a mesh have none.
	Rendezvous string
	// Ticket is the job's secret; nil: it is in TicketFile, or, where Rendezvous is a file, rank 0 makes one.
	Ticket transport.Ticket
	// TicketFile is a file that has the job's secret, or empty.
	TicketFile string
	// Job is a name of this start of the job by which a launcher of others tells it from all others, or empty.
	Job string
	// OneHost says that all ranks are known to be on one host.
	OneHost bool
	// Launched says that the launcher coordinates the job, not rank 0.
	Launched bool
	// Columns, when above 0, is the width of the terminal that this process's
	// output ends up on, though it writes to a pipe.
	Columns int
	// Transport is "shm", "tcp" or empty.
	Transport string
	// Tables are the addresses of the servers that keep parameters, by number, and Heters those of heter-trainers.
	Tables, Heters []string
	// Bind says how a rank is bound that no launcher has started: it is empty where nothing was said.
	Bind Bind
	// Placed tells in words where the launcher has put the ranks: "bound to a core each".
	Placed string
	// Saving says how servers of this launcher are saved.
	Saving CheckpointEnv
	// Threads is how many threads a person wants in each process; 0: nothing was said.
	Threads int
	// Metrics is the folder of the figures of this host's ranks: see metrics.Open.
	Metrics string
	// End, when above 0, is the number of a descriptor to which a rank without a mesh writes how it
	// ended: see ReportExit.
	End int
	// Record, when above 0, is the number of the descriptor of the memory that the launcher holds for Recorder.
	Record int
}

// Serves says that this process is a server, and not a rank that trains.
func (e RankEnv) Serves() bool { return e.Rank >= e.WorldSize }

// Members is how many processes the job has: ranks and servers.
func (e RankEnv) Members() int { return e.WorldSize + e.Servers }

// RankFromEnv reads the variables through lookup, which is like os.LookupEnv. It is the one place
// that knows them. Without RINGO_RANK the process belongs to no job of ours, and present is false:
// see FromExternal. The error names every variable that is missing or wrong; it never shows the
// ticket.
func RankFromEnv(lookup func(string) (string, bool)) (env RankEnv, present bool, err error) {
	if _, present = lookup(RankVar); !present {
		return RankEnv{}, false, nil
	}
	r := envReader{lookup: lookup, because: RankVar}
	env.Rank = r.number(RankVar, 0)
	env.WorldSize = r.number(WorldSizeVar, 1)
	if _, ok := lookup(ServersVar); ok {
		env.Servers = r.number(ServersVar, 0)
	}
	r.role(env)
	if _, ok := lookup(LocalRankVar); ok {
		env.LocalRank = r.number(LocalRankVar, 0)
	}
	env.Tables, env.Heters = r.addresses(tables), r.addresses(Heter)
	if env.Rendezvous, _ = lookup(RendezvousVar); env.Rendezvous == "" && len(env.Tables) == 0 {
		r.text(RendezvousVar) // without a mesh ranks have nothing else to meet at
	} else if env.Rendezvous != "" && !rendezvous.IsBackend(env.Rendezvous) {
		if _, _, err := net.SplitHostPort(env.Rendezvous); err != nil {
			r.fail("%s=%q: want HOST:PORT, the absolute path of a file, or etcd://HOST:PORT/KEY", RendezvousVar, env.Rendezvous)
		}
	}
	r.secret(&env)
	switch who, ok := lookup(CoordinatorVar); {
	case ok && who == launcher:
		env.Launched = true
	case ok && who != "":
		r.fail("%s=%q: want %q, or nothing", CoordinatorVar, who, launcher)
	}
	if _, ok := lookup(ColumnsVar); ok {
		env.Columns = r.number(ColumnsVar, 0)
	}
	if v, _ := lookup(EndVar); v != "" {
		env.End = r.number(EndVar, firstDescriptor)
	}
	env.Record = r.record()
	env.Bind, env.Threads = r.bind(), ThreadsFromEnv(lookup)
	env.Placed, _ = lookup(PlacedVar)
	env.Metrics, _ = lookup(MetricsVar)
	env.Transport, env.Saving = r.transport(), r.saving()
	return env, true, errors.Join(r.errs...)
}

// envReader collects what is wrong with the variables.
type envReader struct {
	lookup  func(string) (string, bool)
	because string // the variable that places the process
	errs    []error
}

func (r *envReader) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// secret reads the ticket of a process's job, or where it stands.
func (r *envReader) secret(env *RankEnv) {
	text, _ := r.lookup(TicketVar)
	env.TicketFile, _ = r.lookup(TicketFileVar)
	switch {
	case text != "" && env.TicketFile != "":
		r.fail("%s and %s are both set: want one of them", TicketVar, TicketFileVar)
	case text != "":
		env.Ticket = r.ticket()
	case env.TicketFile == "" && !rendezvous.IsPrivate(env.Rendezvous):
		r.fail("%s is not set, nor is %s: all processes of a job need the same ticket, in a file that only you may read, such as `ringo ticket FILE` makes", TicketVar, TicketFileVar)
	}
}

// transport reads over what ranks are to talk.
func (r *envReader) transport() string {
	v, _ := r.lookup(TransportVar)
	if v != "" && v != "shm" && v != "tcp" {
		r.fail("%s=%q: want shm, tcp or nothing", TransportVar, v)
	}
	return v
}

// record returns the descriptor of the process's memory, 0 where there is none.
func (r *envReader) record() int {
	if v, _ := r.lookup(RecordVar); v == "" {
		return 0
	}
	return r.number(RecordVar, firstDescriptor)
}

// bind returns what is said of binding.
func (r *envReader) bind() Bind {
	v, _ := r.lookup(BindVar)
	if v != "" && !slices.Contains(Binds(), Bind(v)) {
		r.fail("%s=%q: want one of %v, or nothing", BindVar, v, Binds())
	}
	return Bind(v)
}

// ThreadsFromEnv is how many scheduler threads a person wants in each Go program, 0 where nothing is said: these are
// threads that may compute at the same time.
func ThreadsFromEnv(lookup func(string) (string, bool)) int {
	v, _ := lookup(ThreadsVar)
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0 // as Go's runtime takes it
	}
	return max(0, n)
}

// role checks that a process's number and role agree.
func (r *envReader) role(env RankEnv) {
	role, _ := r.lookup(RoleVar)
	switch {
	case role != "" && role != trainer && role != server:
		r.fail("%s=%q: want %q, %q or nothing", RoleVar, role, trainer, server)
	case len(r.errs) > 0:
	case role != server && env.Serves():
		r.fail("%s=%d: want less than %s=%d", RankVar, env.Rank, WorldSizeVar, env.WorldSize)
	case role == server && (!env.Serves() || env.Rank >= env.Members()):
		r.fail("%s=%d of a %s: want a number from %s=%d on, below that and %s=%d together", RankVar, env.Rank, server,
			WorldSizeVar, env.WorldSize, ServersVar, env.Servers)
	}
}

// text returns a variable that must be set.
func (r *envReader) text(name string) string {
	v, ok := r.lookup(name)
	if !ok || v == "" {
		r.errs = append(r.errs, r.missing(name))
	}
	return v
}

// missing says that a variable must be set.
func (r *envReader) missing(name string) error {
	return fmt.Errorf("%s is not set, but %s is: a process needs both", name, r.because)
}

// number returns a variable that must be a number of at least least.
func (r *envReader) number(name string, least int) int {
	v, ok := r.lookup(name)
	if !ok || v == "" {
		r.text(name)
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least {
		r.fail("%s=%q: want a number of at least %d", name, v, least)
		return 0
	}
	return n
}

// Strings returns the variables as NAME=value: what RankFromEnv reads.
func (e RankEnv) Strings() []string {
	out := []string{
		RankVar + "=" + strconv.Itoa(e.Rank),
		WorldSizeVar + "=" + strconv.Itoa(e.WorldSize),
		LocalRankVar + "=" + strconv.Itoa(e.LocalRank),
	}
	if e.Ticket != nil {
		out = append(out, TicketVar+"="+e.Ticket.String())
	}
	if e.TicketFile != "" {
		out = append(out, TicketFileVar+"="+e.TicketFile)
	}
	if e.Rendezvous != "" {
		out = append(out, RendezvousVar+"="+e.Rendezvous)
	}
	if e.Servers > 0 {
		role := trainer
		if e.Serves() {
			role = server
		}
		out = append(out, ServersVar+"="+strconv.Itoa(e.Servers), RoleVar+"="+role)
	}
	if e.Launched {
		out = append(out, CoordinatorVar+"="+launcher)
	}
	if e.Transport != "" {
		out = append(out, TransportVar+"="+e.Transport)
	}
	if e.Placed != "" {
		out = append(out, PlacedVar+"="+e.Placed)
	}
	if e.Metrics != "" {
		out = append(out, MetricsVar+"="+e.Metrics)
	}
	if e.Columns > 0 {
		out = append(out, ColumnsVar+"="+strconv.Itoa(e.Columns))
	}
	if e.End > 0 {
		out = append(out, EndVar+"="+strconv.Itoa(e.End))
	}
	if e.Record > 0 {
		out = append(out, RecordVar+"="+strconv.Itoa(e.Record))
	}
	return append(append(out, addrsOf(tables, e.Tables)...), addrsOf(Heter, e.Heters)...)
}
