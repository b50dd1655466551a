// Package job describes a training job as one value: its model, training, processes and rendezvous.
// A Spec is built from assignments: flags, a job file, a checkpoint or a launcher's. A model's
// defaults come first, and later assignments override earlier ones. The rows come from the packages
// with the settings (package setting), so a setting has one name, one default and one check in
// every source.
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

// Sync is the method by which ranks agree on parameters.
type Sync string

const (
	// AllReduce: ranks sum gradients among themselves.
	AllReduce Sync = "allreduce"
	// Aggregate: aggregation servers sum gradients for the ranks, and ranks update the parameters.
	Aggregate Sync = "aggregate"
	// BSP: parameter servers update in steps, by the mean of all ranks' gradients.
	BSP Sync = "bsp"
	// SSP: parameter servers update as gradients arrive, and the staleness limits a rank's lead
	// over the slowest.
	SSP Sync = "ssp"
	// Async: parameter servers update as gradients arrive.
	Async Sync = "async"
	// Geo: ranks update local copies, and exchange the differences every few steps.
	Geo Sync = "geo"
)

// Syncs returns all values.
func Syncs() []Sync { return []Sync{AllReduce, Aggregate, BSP, SSP, Async, Geo} }

// UsesParameterServers reports whether parameter servers store the parameters.
func (s Sync) UsesParameterServers() bool { return slices.Contains([]Sync{BSP, SSP, Async, Geo}, s) }

// Values of Transport in addition to those of package ringo.
const (
	// TransportAuto: goroutines of one process for one rank, else shared memory.
	TransportAuto = "auto"
	// TransportMem: ranks are goroutines of one process.
	TransportMem = "mem"
)

// Spec is a job. New returns a Spec with its defaults.
type Spec struct {
	// Model is a name accepted by models.Lookup; empty for a job without a built-in model.
	Model string
	// Sync is the method by which ranks agree on parameters.
	Sync Sync
	// Train is the training configuration. Sync sets its Servers.Consistency, and complete sets the
	// dependent fields.
	Train train.Config
	// Seeds is the number of seeds to train sequentially.
	Seeds int
	// Folds is the number of folds of a cross-validation. 0 means none.
	Folds int

	// Ranks is the world size.
	Ranks int
	// Rank is this process's rank if it was started by hand. -1 means the launcher's.
	Rank int
	// Rendezvous is the HOST:PORT of rank 0 for processes that ringo does not start; or the
	// absolute path of a shared file, or a key of etcd, with that address.
	Rendezvous string
	// Hosts are the hosts for ranks, HOST:N,HOST:N, reached by ssh. Empty means this host.
	Hosts string
	// HeterHosts are the hosts for heter-trainers. Empty means the hosts of the ranks, round-robin.
	HeterHosts string
	// HeterDevice is the device on which heter-trainers compute: "cpu"; "torch-cpu" or
	// "torch-cuda", of PyTorch; or a program in Python, FILE.py.
	HeterDevice string
	// HeterAddresses are the listen addresses, HOST:PORT, of heter-trainers started by hand, by
	// number.
	HeterAddresses []string
	// MinRanks is the least number of ranks with which a job of virtual workers, or of a program
	// that can continue, goes on after the loss of a rank. 0: the job ends.
	MinRanks int
	// MaxRestarts limits the restarts of each lost parameter server with a log and heter-trainer.
	MaxRestarts int
	// SSH is the command that starts a program on another host, with options. Empty means ssh.
	SSH string
	// Copy enables copying this program to hosts without a copy.
	Copy bool
	// TicketFile is a file with the ticket, the job's secret, with which processes started by hand
	// join. RINGO_TICKET and RINGO_TICKET_FILE take precedence.
	TicketFile string
	// Transport is TransportAuto, TransportMem, or a value of package ringo.
	Transport string
	// Collective configures the ranks' operations.
	Collective collective.Config
	// Times are the maximum waits for other processes, and the time limits of the failure detector.
	Times cluster.Times
	// Bind selects whether ranks are bound to CPUs.
	Bind launch.Bind
	// Cores is the number of cores that a rank has detected, if it was started by hand or the job
	// has several hosts. 0 means unknown.
	Cores int
	// Network configures the connections between processes.
	Network ringo.Network

	// Servers configures the number, hosts and addresses of servers.
	Servers Servers
	// ParameterServer configures parameter servers. Server completes it.
	ParameterServer server.Config

	// Tuning configures choices by measurement.
	Tuning Tuning
	// Output is what is told and written.
	Output Output
}

// Servers describes the servers of a job.
type Servers struct {
	// Count is the number of servers. 0 means 1 if Sync needs servers.
	Count int
	// Hosts are the hosts for servers, in the format of Spec.Hosts. Empty means the hosts of the
	// ranks, round-robin.
	Hosts string
	// Addresses are the listen addresses, HOST:PORT, of parameter servers started by hand, by
	// number.
	Addresses []string
}

// Tuning configures how plans, strategies and algorithms are chosen.
type Tuning struct {
	// Tune measures the links and, if a plan needs them, the first steps.
	Tune bool
	// Profile is the file of measured costs. With Tune the job writes the file; otherwise the job
	// reads the file and chooses by these costs.
	Profile string
}

// Output configures the displays and the files of a job.
type Output struct {
	// BlackBox is the folder of the record of every process if the job fails. "none" disables the
	// record. Empty means the user's folder in the system's folder for temporary files.
	BlackBox string
	// LogDir is the folder of one output file per process. Empty means none.
	LogDir string
	// JSON is a file with one object per epoch and a summary. "-" means standard output.
	JSON string
	// HTTP is the HOST:PORT of the dashboard, metrics and profiles of this host's ranks. Empty
	// means none.
	HTTP string
	// Progress is the progress output: auto, bar, plain or none.
	Progress string
	// TensorBoard is the folder of event files.
	TensorBoard string
	// Trace is the file of a timeline of all ranks.
	Trace string
}

// newSpec returns the defaults of a job with a model and an optimizer; both can be empty.
func newSpec(name, optimizer string) *Spec {
	var known model.Spec
	if name != "" {
		known, _ = models.Lookup(name) // the caller reports an unknown model
	}
	s := &Spec{
		Model: name, Sync: AllReduce, Train: train.Defaults(known, ""), Seeds: 1,
		Ranks: 1, Rank: -1, HeterDevice: "cpu", Transport: TransportAuto, Collective: collective.Config{Algorithm: collective.Auto, Timeout: 10 * time.Minute}, ParameterServer: server.Defaults(), Times: cluster.Times{}.WithDefaults(), Bind: launch.BindAuto,
		Output: Output{Progress: "auto"},
	}
	s.Train.Threads, s.Network.Streams = 0, 1
	if optimizer != "" {
		s.Train.SetOptimizer(optimizer)
	}
	return s
}

// New returns the job of some assignments, later ones overriding earlier ones, and its table of
// settings. Errors: invalid values and unknown settings; all other settings are applied.
func New(given ...setting.Assignment) (*Spec, *setting.Table, error) {
	given = implied(given)
	s := newSpec(last(given, "model"), last(given, "training.optimizer"))
	t, err := setting.New(s.Settings()...)
	if err != nil {
		return nil, nil, err
	}
	faults := t.Apply(given...)
	s.Train.ScaleLR = last(given, "training.lr") == ""
	if w := &s.Train.Warmup; s.Train.ScaleLR && last(given, "training.warmup") != "" && w.Steps == 0 && w.Epochs == 0 {
		w.Steps = 1 // a warm-up of one step: the full, scaled rate from the first step
	}
	s.complete()
	return s, t, faults.Err()
}

// implied adds assignments that follow from others: the number of servers and heter-trainers from
// their addresses, and BSP for a job with heter-trainers.
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

// last returns the last text assigned to a path, or "".
func last(given []setting.Assignment, path setting.Path) (text string) {
	for _, a := range given {
		if a.Path == path {
			text = a.Text
		}
	}
	return text
}

// complete sets the fields that follow from settings.
func (s *Spec) complete() {
	s.Train.Name, s.Train.Tuning.Measure = s.Model, s.Tuning.Tune
	if s.Sync != AllReduce {
		s.Servers.Count = cmp.Or(s.Servers.Count, 1)
	}
	if s.Sync.UsesParameterServers() {
		s.Train.Servers.Consistency = string(s.Sync)
	}
}

// AggregationServers returns the number of aggregation servers.
func (s *Spec) AggregationServers() int {
	if s.Sync == Aggregate {
		return s.Servers.Count
	}
	return 0
}

// ParameterServers returns the number of parameter servers.
func (s *Spec) ParameterServers() int {
	if s.Sync.UsesParameterServers() {
		return s.Servers.Count
	}
	return 0
}

// ByHand reports whether this process is one rank, started by a user.
func (s *Spec) ByHand() bool { return s.Rank >= 0 }

// InProcess reports whether all ranks are goroutines of one process.
func (s *Spec) InProcess() bool {
	return s.Transport == TransportMem || s.Transport == TransportAuto && s.Ranks == 1 && !s.Sync.UsesParameterServers() && s.Hosts == ""
}

// ContinueOnLoss reports whether ranks continue without a lost rank. Such ranks form no mesh.
func (s *Spec) ContinueOnLoss() bool {
	return s.Sync.UsesParameterServers() && s.ParameterServer.OnLost == engine.ContinueJob
}

// Threads returns the number of threads of a rank: the setting, or a share of this machine's cores.
func (s *Spec) Threads() int {
	switch {
	case s.Train.Threads > 0:
		return min(s.Train.Threads, train.MaxThreads)
	case s.ByHand(), s.Hosts != "":
		return min(cmp.Or(s.Cores, placement.Usable()), train.MaxThreads)
	}
	return max(1, placement.Usable()/max(1, s.Ranks))
}
