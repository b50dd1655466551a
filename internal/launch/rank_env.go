package launch

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/transport"
)

// Variables with a process's place in its job.
const (
	RankVar             = "RINGO_RANK"        // rank of this process, from 0; servers have the numbers after the training ranks
	WorldSizeVar        = "RINGO_WORLD_SIZE"  // number of training ranks
	ServersVar          = "RINGO_SERVERS"     // number of aggregation servers; unset: none
	RoleVar             = "RINGO_ROLE"        // "trainer" or unset, or "server"
	LocalRankVar        = "RINGO_LOCAL_RANK"  // number among the ranks of this host
	RendezvousVar       = "RINGO_RENDEZVOUS"  // coordinator's address, HOST:PORT, or the absolute path of a file with the address; unset for ranks without a mesh
	TicketVar           = "RINGO_TICKET"      // job's secret
	TicketFileVar       = "RINGO_TICKET_FILE" // path of a file with the secret, readable by the owner only
	CoordinatorVar      = "RINGO_COORDINATOR" // "launcher", or unset: rank 0 coordinates
	ColumnsVar          = "RINGO_COLUMNS"     // width of the launcher's terminal, for rank 0
	TransportVar        = "RINGO_TRANSPORT"   // "shm" or "tcp"; unset: shm between ranks of one host
	BindVar             = "RINGO_BIND"        // "auto", "core" or "none"; unset: auto; for ranks without a launcher of ringo
	PlacementVar        = "RINGO_PLACEMENT"   // placement of launched ranks on processors, as text
	ThreadsVar          = "GOMAXPROCS"        // Go's own variable: threads per process as set by the user; unset: default
	ParameterServersVar = "RINGO_PS_ADDRS"    // addresses of the parameter servers, HOST:PORT,HOST:PORT,…; unset: none; each role has such a variable, RINGO_ROLE_ADDRS
	TableVar            = "RINGO_PS_INDEX"    // number of a parameter server, from 0; each role has RINGO_ROLE_INDEX
	HetersVar           = "RINGO_HETER_ADDRS" // addresses of heter-trainers, in the same form
	HeterVar            = "RINGO_HETER_INDEX"
	ListenFDVar         = "RINGO_LISTEN_FD" // descriptor of the process's listening socket, for roles with sockets
	MetricsVar          = "RINGO_METRICS"   // folder of the metrics of this host's ranks; unset: no metrics; see metrics.Open
	ExitFDVar           = "RINGO_EXIT_FD"   // descriptor for exit report and heartbeats of a process outside the mesh
	RecordFDVar         = "RINGO_RECORD_FD" // descriptor of the memory for the process's record; unset: private memory
	PlacesFDVar         = "RINGO_PLACES_FD" // descriptor of the pipe with a rank's next places, see Places; unset: none
	// JobVar holds the settings of the whole job, the same text for each of its processes, or is
	// unset. JobVar never holds the ticket: see JobSpecFromEnv.
	JobVar = "RINGO_JOB"
	// AlgorithmVar names the algorithm of collective operations, see collective.Algorithms, or is
	// unset.
	AlgorithmVar = "RINGO_COLLECTIVE_ALGORITHM"
	// AdminTokenVar holds the token of the job's HTTP address, if the user chose one.
	AdminTokenVar = "RINGO_HTTP_TOKEN"
	// formerTokenVar is AdminTokenVar of earlier versions, read until 1.0.
	formerTokenVar = "RINGO_PS_HTTP_TOKEN"
)

// placeVars are the variables that the launcher sets anew for each place of a process.
var placeVars = []string{RankVar, WorldSizeVar, ServersVar, RoleVar, LocalRankVar, RendezvousVar, TicketVar, TicketFileVar, CoordinatorVar, ColumnsVar, PlacementVar, MetricsVar, JobVar}

const minToken = 16

// AdminTokenFromEnv returns the token in AdminTokenVar, or an empty one. The error does not show
// the token.
func AdminTokenFromEnv(lookup func(string) (string, bool)) (string, error) {
	token, _ := lookup(AdminTokenVar)
	former, _ := lookup(formerTokenVar)
	if token != "" && former != "" && token != former {
		return "", fmt.Errorf("%s and %s differ: set the first one", AdminTokenVar, formerTokenVar)
	}
	token = cmp.Or(token, former)
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	if token != "" && (len(token) < minToken || strings.ContainsFunc(token, strange)) {
		return "", fmt.Errorf("%s has %d characters: want at least %d, without spaces, in ASCII, such as `openssl rand -hex 16` makes", AdminTokenVar, len(token), minToken)
	}
	return token, nil
}

// maxJob limits Config.JobSpec: on Linux a variable with its name has at most 128 KiB.
const maxJob = 127 << 10

// JobSpecFromEnv returns the launcher's Config.JobSpec; present is false without one.
func JobSpecFromEnv(lookup func(string) (string, bool)) (text string, present bool) {
	text, _ = lookup(JobVar)
	return text, text != ""
}

const (
	launcher = "launcher" // value of CoordinatorVar
	trainer  = "trainer"  // value of RoleVar
	server   = "server"

	tables = "ps" // name of the role of parameter servers

	// Heter is the name of the role of heter-trainers; RoleFromEnv reads their variables.
	Heter = "heter"

	varPrefix, addrsSuffix, indexSuffix = "RINGO_", "_ADDRS", "_INDEX" // parts of the names of role variables
)

// RankEnv is a process's place: a training rank below WorldSize, else one of the Servers.
type RankEnv struct {
	// Rank is the process's number in the mesh, from 0.
	Rank int
	// WorldSize is the number of training ranks.
	WorldSize int
	// LocalRank is the process's number among the processes of its host.
	LocalRank int
	// Servers is the number of servers in the mesh, numbered after the training ranks.
	Servers int
	// Rendezvous is the coordinator's address, HOST:PORT, or the absolute path of a file with the
	// address from rank 0 (package internal/cluster/rendezvous). Empty for ranks without a mesh.
	Rendezvous string
	// Ticket is the job's secret. nil means that TicketFile has the secret or, with a file as
	// Rendezvous, that rank 0 generates one.
	Ticket transport.Ticket
	// TicketFile is a file with the job's secret, or empty.
	TicketFile string
	// Job is the unique name that another launcher gave to this start of the job, or empty.
	Job string
	// OneHost reports whether all ranks are known to be on one host.
	OneHost bool
	// Launched reports whether the launcher coordinates the job, instead of rank 0.
	Launched bool
	// Columns is the width of the terminal that displays this process's output, although the
	// process writes to a pipe. 0 means unknown.
	Columns int
	// Transport is "shm", "tcp" or empty.
	Transport string
	// Algorithm is AlgorithmVar, unchecked.
	Algorithm string
	// Tables are the addresses of the parameter servers, and Heters those of heter-trainers.
	Tables, Heters []string
	// Bind selects the binding of a rank without a launcher; empty means unset.
	Bind Bind
	// Placed is the launcher's placement of the ranks, as text: "bound to a core each".
	Placed string
	// Saving describes the checkpoints of this launcher's servers.
	Saving CheckpointEnv
	// Threads is the user's number of threads per process; 0 means unset.
	Threads int
	// Metrics is the folder of the metrics of this host's ranks: see metrics.Open.
	Metrics string
	// End is the descriptor for the exit report of a rank without a mesh: see Tell. 0: none.
	End int
	// Record is the descriptor of the launcher's memory for Recorder. 0 means none.
	Record int
}

// Serves reports whether this process is a server.
func (e RankEnv) Serves() bool { return e.Rank >= e.WorldSize }

// Members returns the number of ranks and servers of the job.
func (e RankEnv) Members() int { return e.WorldSize + e.Servers }

// RankFromEnv reads the variables through lookup, which is like os.LookupEnv; no other function
// interprets them. Without RINGO_RANK the process is in no job of ringo, and present is false: see
// FromExternal. The error names every missing or invalid variable, without the ticket.
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
		r.text(RendezvousVar) // ranks without a mesh need a rendezvous
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
	env.End, env.Record = r.descriptor(ExitFDVar), r.descriptor(RecordFDVar)
	env.Bind, env.Threads = r.bind(), ThreadsFromEnv(lookup)
	env.Placed, _ = lookup(PlacementVar)
	env.Metrics, _ = lookup(MetricsVar)
	env.Transport, env.Saving = r.transport(), r.saving()
	env.Algorithm, _ = lookup(AlgorithmVar)
	return env, true, errors.Join(r.errs...)
}

// envReader collects the errors of the variables.
type envReader struct {
	lookup  func(string) (string, bool)
	because string // variable that makes the other variables required
	errs    []error
}

func (r *envReader) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// secret reads the ticket of a process's job, or the ticket's file.
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

func (r *envReader) transport() string {
	v, _ := r.lookup(TransportVar)
	if v != "" && v != "shm" && v != "tcp" {
		r.fail("%s=%q: want shm, tcp or nothing", TransportVar, v)
	}
	return v
}

// descriptor returns the file descriptor in a variable, or 0 without the variable.
func (r *envReader) descriptor(name string) int {
	if v, _ := r.lookup(name); v == "" {
		return 0
	}
	return r.number(name, firstDescriptor)
}

func (r *envReader) bind() Bind {
	v, _ := r.lookup(BindVar)
	if v != "" && !slices.Contains(Binds(), Bind(v)) {
		r.fail("%s=%q: want one of %v, or nothing", BindVar, v, Binds())
	}
	return Bind(v)
}

// ThreadsFromEnv returns the user's limit of running threads per Go program, or 0 if unset.
func ThreadsFromEnv(lookup func(string) (string, bool)) int {
	v, _ := lookup(ThreadsVar)
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0 // same as Go's runtime
	}
	return max(0, n)
}

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

// text returns the value of a required variable.
func (r *envReader) text(name string) string {
	v, ok := r.lookup(name)
	if !ok || v == "" {
		r.errs = append(r.errs, r.missing(name))
	}
	return v
}

func (r *envReader) missing(name string) error {
	return fmt.Errorf("%s is not set, but %s is: a process needs both", name, r.because)
}

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

// Strings returns the variables read by RankFromEnv, as NAME=value.
func (e RankEnv) Strings() []string {
	out := variables{
		RankVar + "=" + strconv.Itoa(e.Rank),
		WorldSizeVar + "=" + strconv.Itoa(e.WorldSize),
		LocalRankVar + "=" + strconv.Itoa(e.LocalRank),
	}
	if e.Ticket != nil {
		out.text(TicketVar, e.Ticket.String())
	}
	out.text(TicketFileVar, e.TicketFile)
	out.text(RendezvousVar, e.Rendezvous)
	if e.Servers > 0 {
		role := trainer
		if e.Serves() {
			role = server
		}
		out.number(ServersVar, e.Servers)
		out.text(RoleVar, role)
	}
	if e.Launched {
		out.text(CoordinatorVar, launcher)
	}
	out.text(TransportVar, e.Transport)
	out.text(AlgorithmVar, e.Algorithm)
	out.text(PlacementVar, e.Placed)
	out.text(MetricsVar, e.Metrics)
	out.number(ColumnsVar, e.Columns)
	out.number(ExitFDVar, e.End)
	out.number(RecordFDVar, e.Record)
	out.text(addrsVar(tables), strings.Join(e.Tables, ","))
	out.text(addrsVar(Heter), strings.Join(e.Heters, ","))
	return out
}

// variables are variables as NAME=value, without empty values and zeros.
type variables []string

func (v *variables) text(name, value string) {
	if value != "" {
		*v = append(*v, name+"="+value)
	}
}

func (v *variables) number(name string, n int) {
	if n > 0 {
		v.text(name, strconv.Itoa(n))
	}
}
