// Package job describes a training job as one value: which model, how it is trained, which processes there are and
// how they meet. A Spec is made of assignments, whose texts come from flags, a job file, a checkpoint or a launcher:
// a model's own defaults first, each later assignment over the earlier ones. Its rows are those of the packages that it
// joins (setting), so a setting has one name, one default and one check wherever it is given.
package job

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
)

// Sync is how ranks agree on parameters.
type Sync string

const (
	// AllReduce: ranks sum gradients among themselves.
	AllReduce Sync = "allreduce"
	// Sum: servers sum gradients for the ranks, which keep the parameters.
	Sum Sync = "sum"
	// BSP: servers keep the parameters and update them by the mean of all ranks' gradients, in step.
	BSP Sync = "bsp"
	// SSP: servers update as gradients come, and no rank is more than a number of steps ahead of the slowest.
	SSP Sync = "ssp"
	// Async: servers update as gradients come.
	Async Sync = "async"
	// Geo: ranks update copies of their own and exchange by how much these moved, every few steps.
	Geo Sync = "geo"
)

// Syncs are all of them.
func Syncs() []Sync { return []Sync{AllReduce, Sum, BSP, SSP, Async, Geo} }

// UsesParameterServers says that servers keep the parameters.
func (s Sync) UsesParameterServers() bool { return slices.Contains([]Sync{BSP, SSP, Async, Geo}, s) }

// What Transport may say besides the names of package ringo.
const (
	// TransportAuto: memory of one process for one rank, else shared memory.
	TransportAuto = "auto"
	// TransportMem: ranks are goroutines of one process.
	TransportMem = "mem"
)

// Spec is a job. New makes one with its defaults.
type Spec struct {
	// Model is a name known to models.Lookup, empty for a job that trains no model of ours.
	Model string
	// Sync is how ranks agree on parameters.
	Sync Sync
	// Train is the training itself. Sync decides its Servers.Consistency, and Complete what else follows.
	Train train.Config
	// Seeds is how many seeds are trained one after the other.
	Seeds int

	// Ranks is the world size.
	Ranks int
	// Rank is which rank this process is, started by hand; -1: a launcher places it.
	Rank int
	// Rendezvous is where rank 0 meets the others, for processes that ringo does not start: its HOST:PORT, or where it says that, the
	// absolute path of a file on a folder that all have, or a key of etcd.
	Rendezvous string
	// Hosts are those on which the launcher starts ranks, by ssh, HOST:N,HOST:N; "": this one.
	Hosts string
	// HeterHosts are those on which it starts heter-trainers; "": dealt to those of the ranks in turn.
	HeterHosts string
	// HeterAddresses are where heter-trainers listen, HOST:PORT each by number, where they are started by hand.
	HeterAddresses []string
	// MaxRestarts limits the restarts of each lost parameter server with a log and heter-trainer.
	MaxRestarts int
	// SSH is the command that does, with its options; "": ssh.
	SSH string
	// Copy says that hosts get a copy of this program where they have none.
	Copy bool
	// TicketFile has the ticket of such processes, where RINGO_TICKET and RINGO_TICKET_FILE do not say it.
	TicketFile string
	// Transport is TransportAuto, TransportMem, or one of ringo's.
	Transport string
	// Collective says how the ranks' operations go.
	Collective collective.Config
	// Times say how long processes wait for each other, and when one is lost.
	Times cluster.Times
	// Bind says whether ranks are bound to processors.
	Bind launch.Bind
	// Cores, when above 0, is how many cores a rank has found for itself that was started by hand, or is one of several hosts.
	Cores int
	// Network is how processes are connected.
	Network ringo.Network

	// Servers say which servers there are.
	Servers Servers
	// ParameterServer is what servers do that keep parameters. Server completes it.
	ParameterServer server.Config

	// Tuning is what is chosen by measurements.
	Tuning Tuning
	// Output is what is told and written.
	Output Output
}

// Servers are the servers of a job.
type Servers struct {
	// Count is how many there are; 0: one, where Sync needs any.
	Count int
	// Hosts are those on which a launcher starts them, as Spec.Hosts; "": dealt to those of the ranks in turn.
	Hosts string
	// Addresses are where those that keep parameters listen, HOST:PORT each by number, where they are started by hand.
	Addresses []string
}

// Tuning says by what plans, strategies and algorithms are chosen.
type Tuning struct {
	// Tune measures the links and, for a plan that needs it, the first steps.
	Tune bool
	// Profile is the file of measured costs: with Tune it is written, else read to choose by.
	Profile string
}

// Output says what rank 0 tells and writes.
type Output struct {
	// BlackBox is the folder of a file that says what every process was doing when the job failed;
	// "none": nowhere; "": a folder of the user's own in the system's folder for temporary files.
	BlackBox string
	// LogDir is the folder of a file with the output of each process; "": there are none.
	LogDir string
	// JSON is the file of one object per epoch and a summary; "-" is standard output.
	JSON string
	// HTTP is the HOST:PORT of the dashboard, metrics and profiles of this host's ranks; "": none.
	HTTP string
	// Progress is how progress is shown: auto, bar, plain or none.
	Progress string
	// TensorBoard is the folder of event files.
	TensorBoard string
	// Trace is the file of a timeline of all ranks.
	Trace string
}

// Defaults of settings whose packages leave a choice.
const defaultTimeout = 10 * time.Minute

// newSpec is the job of a model with a certain optimizer, both perhaps empty, and all else as usual.
func newSpec(name, optimizer string) *Spec {
	var known model.Spec
	if name != "" {
		known, _ = models.Lookup(name) // who starts the job says what there are
	}
	s := &Spec{
		Model: name, Sync: AllReduce, Train: train.Defaults(known, ""), Seeds: 1,
		Ranks: 1, Rank: -1, Transport: TransportAuto, Collective: collective.Config{Algorithm: collective.Auto, Timeout: defaultTimeout}, ParameterServer: server.Defaults(), Times: cluster.Times{}.WithDefaults(), Bind: launch.BindAuto,
		Output: Output{Progress: "auto"},
	}
	s.Train.Threads, s.Network.Streams = 0, 1
	if optimizer != "" {
		s.Train.SetOptimizer(optimizer)
	}
	return s
}

// New makes the job that assignments describe, later ones over earlier ones, and its table of settings. Faults are
// texts that are no values, and settings that do not exist; the others are set all the same.
func New(given ...setting.Assignment) (*Spec, *setting.Table, error) {
	given = implied(given)
	s := newSpec(last(given, "model"), last(given, "training.optimizer"))
	t, err := setting.New(s.Settings()...)
	if err != nil {
		return nil, nil, err
	}
	faults := t.Apply(given...)
	s.Train.ScaleLR = last(given, "training.lr") == ""
	s.complete()
	return s, t, faults.Err()
}

// implied adds what has one choice once something else is given: there are as many servers and heter-trainers as have addresses, and
// heter-trainers need servers that are in step.
func implied(given []setting.Assignment) []setting.Assignment {
	at := func(path setting.Path) int {
		return slices.IndexFunc(given, func(a setting.Assignment) bool { return a.Path == path })
	}
	for _, p := range [][2]setting.Path{{"ps.addresses", "servers.count"}, {"heter.addresses", "heter.count"}} {
		addresses, count := p[0], p[1]
		if i := at(addresses); i >= 0 && at(count) < 0 {
			n := 1 + strings.Count(last(given, addresses), ",")
			given = append(slices.Clip(given), setting.Assignment{Path: count, Text: strconv.Itoa(n), Origin: given[i].Origin})
		}
	}
	i := at("heter.count")
	if n, _ := strconv.Atoi(last(given, "heter.count")); n <= 0 || last(given, "sync") != "" {
		return given
	}
	return append(slices.Clip(given), setting.Assignment{Path: "sync", Text: string(BSP), Origin: given[i].Origin})
}

// last is what the last assignment of a path says.
func last(given []setting.Assignment, path setting.Path) (text string) {
	for _, a := range given {
		if a.Path == path {
			text = a.Text
		}
	}
	return text
}

// complete sets what follows from settings and is none itself.
func (s *Spec) complete() {
	s.Train.Name, s.Train.Tuning.Measure = s.Model, s.Tuning.Tune
	if s.Sync != AllReduce {
		s.Servers.Count = cmp.Or(s.Servers.Count, 1)
	}
	if s.Sync.UsesParameterServers() {
		s.Train.Servers.Consistency = string(s.Sync)
	}
}

// AggregationServers is how many servers sum gradients.
func (s *Spec) AggregationServers() int {
	if s.Sync == Sum {
		return s.Servers.Count
	}
	return 0
}

// ParameterServers is how many servers keep parameters.
func (s *Spec) ParameterServers() int {
	if s.Sync.UsesParameterServers() {
		return s.Servers.Count
	}
	return 0
}

// ByHand says that this process is one rank, started by a person.
func (s *Spec) ByHand() bool { return s.Rank >= 0 }

// InProcess says that all ranks are goroutines of one process.
func (s *Spec) InProcess() bool {
	return s.Transport == TransportMem || s.Transport == TransportAuto && s.Ranks == 1 && !s.Sync.UsesParameterServers() && s.Hosts == ""
}

// ContinueOnLoss says that ranks go on without one that is lost. They form no mesh then.
func (s *Spec) ContinueOnLoss() bool {
	return s.Sync.UsesParameterServers() && s.ParameterServer.OnLost == engine.ContinueJob
}

// Threads is how many threads a rank computes on: those given, or its share of this machine's cores.
func (s *Spec) Threads() int {
	switch {
	case s.Train.Threads > 0:
		return min(s.Train.Threads, train.MaxThreads)
	case s.ByHand(), s.Hosts != "":
		return min(cmp.Or(s.Cores, placement.Usable()), train.MaxThreads)
	}
	return max(1, placement.Usable()/max(1, s.Ranks))
}
