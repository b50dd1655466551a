package job

import (
	"errors"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/hostport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

const (
	// MaxRanks limits the effect of a typing error: each rank is a process with a connection to
	// every other rank.
	MaxRanks = 1024
	// maxSeeds limits the effect of a typing error.
	maxSeeds = 1000
)

// Validate returns all errors of a training job together. Unused finds settings without effect.
func (s *Spec) Validate() error {
	return errors.Join(s.ValidateProcesses(), s.ValidateTraining())
}

// ValidateTraining is Validate without ValidateProcesses.
func (s *Spec) ValidateTraining() error {
	errs := setting.Faults{s.training().Validate()}
	errs.Add(s.Seeds < 1 || s.Seeds > maxSeeds, "training.seeds", "%d: want 1 to %d", s.Seeds, maxSeeds)
	errs.Add(s.Seeds > 1 && s.Sync.UsesParameterServers(), "training.seeds", "%d with %v %s: servers hold the parameters of one run: run the seeds one by one", s.Seeds, setting.Path("sync"), s.Sync)
	errs.Add(s.Seeds > 1 && s.Train.Checkpoint.Dir != "", "training.seeds", "%d with %v %q: a folder of checkpoints is of one run", s.Seeds, setting.Path("checkpoint.dir"), s.Train.Checkpoint.Dir)
	errs.Add(s.Sync == Aggregate && s.Train.Exchange.Strategy == distopt.PartialUpdate, "exchange.strategy", "%s with %v %s: this strategy averages parameters between ranks, without servers: use another strategy", s.Train.Exchange.Strategy, setting.Path("sync"), s.Sync)
	errs.Add(s.Train.Model.Build != nil && !s.Train.Model.Drops && s.Train.Dropout > 0, "training.dropout", "%s has no effect on %s, which drops nothing: leave it out", quantity.Exact(s.Train.Dropout), s.Model)
	errs.Add(s.ParameterServer.From != "" && s.Train.Start.From != "", "ps.init-from", "with %v: both set the source of the rows: choose one", setting.Path("training.init-from"))
	errs.Add(s.Folds < 0 || s.Folds == 1 || s.Folds > maxSeeds, "training.folds", "%d: want 2 to %d, or 0 for none", s.Folds, maxSeeds)
	errs.Add(s.Folds > 0 && s.Seeds > 1, "training.folds", "%d with %v %d: vary one of the two", s.Folds, setting.Path("training.seeds"), s.Seeds)
	errs.Add(s.Folds > 0 && s.Sync.UsesParameterServers(), "training.folds", "%d with %v %s: servers keep the parameters of one run", s.Folds, setting.Path("sync"), s.Sync)
	errs.Add(s.Folds > 0 && s.Train.Checkpoint.Dir != "", "training.folds", "%d with %v %q: a folder of checkpoints is of one run", s.Folds, setting.Path("checkpoint.dir"), s.Train.Checkpoint.Dir)
	errs.Add((s.Folds > 0 || s.Seeds > 1) && s.Train.Precision == "auto", "training.precision", "auto with several runs, which may choose differently: use fp32 or bf16")
	errs.Add(s.Folds > 0 && s.Train.Split != 0, "training.folds", "%d with %v %s: each part is held out once", s.Folds, setting.Path("data.eval-split"), quantity.Exact(s.Train.Split))
	errs.Add(s.Folds > 0 && len(s.Train.Tuning.Choices) > 0, "training.folds", "%d with %v: these were made for one run", s.Folds, setting.Path("tuning.choices"))
	errs.Add(s.Seeds > 1 && len(s.Train.Tuning.Choices) > 0, "training.seeds", "%d with %v: recorded choices belong to one seed", s.Seeds, setting.Path("tuning.choices"))
	workers := s.Train.Workers
	errs.Add(workers > 0 && workers < s.Ranks, "job.workers", "%d: want at least one for each rank, since %v is %d", workers, setting.Path("job.ranks"), s.Ranks)
	errs.Add(workers > 0 && s.Sync == Aggregate, "sync", "%s with %v %d: aggregation servers sum in the order of the ranks: use allreduce", s.Sync, setting.Path("job.workers"), workers)
	errs.Add((s.Tuning.Tune || s.Tuning.Profile != "") && len(s.Collective.Rules) > 0, "tuning.algorithms", "with %v or %v, which find their own: choose one", setting.Path("tuning.tune"), setting.Path("tuning.profile"))
	errs = append(errs, s.validateWhole())
	return errs.Err()
}

// ValidateProcesses returns all errors of the processes and their rendezvous.
func (s *Spec) ValidateProcesses() error {
	errs := setting.Faults{s.Times.Validate(), s.Network.Validate()}
	errs.Add(s.Ranks < 1 || s.Ranks > MaxRanks, "job.ranks", "%d: want 1 to %d", s.Ranks, MaxRanks)
	errs.Add(s.Rank < -1 || s.Rank >= max(1, s.Ranks), "job.rank", "%d: want 0 to %d, since %v is %d", s.Rank, s.Ranks-1, setting.Path("job.ranks"), s.Ranks)
	errs.Add(s.ByHand() && s.Rendezvous == "" && !s.ContinueOnLoss(), "job.rank", "%d needs %v: the HOST:PORT of rank 0, or a file for its address", s.Rank, setting.Path("job.rendezvous"))
	if s.Rendezvous != "" && !rendezvous.IsBackend(s.Rendezvous) {
		_, _, err := hostport.Split(s.Rendezvous, 1)
		errs.Add(err != nil, "job.rendezvous", "%q: %w, the absolute path of a file, or etcd://HOST:PORT/KEY", s.Rendezvous, err)
	}
	if at := s.Output.HTTP; at != "" {
		_, _, err := hostport.Split(at, 0)
		errs.Add(err != nil, "output.http", "%q: %w, such as 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses of this host", at, err)
	}
	errs = append(errs, s.validateHosts())
	errs.Add(s.Collective.Timeout <= 0, "job.timeout", "%v: want a positive time, such as 30s", s.Collective.Timeout)
	errs.Add(s.Train.Threads < 0 || s.Train.Threads > train.MaxThreads, "training.threads", "%d: want 1 to %d, or 0 for this rank's share of the cores", s.Train.Threads, train.MaxThreads)
	errs.Add(s.Collective.Algorithm == collective.Exchange && s.Ranks > 2, "job.collective-algorithm", "%s is for two ranks, %v is %d", s.Collective.Algorithm, setting.Path("job.ranks"), s.Ranks)
	errs.Add(s.Bind == launch.BindCore && s.InProcess(), "job.bind", "core: the ranks are goroutines of one process, which cannot be bound to cores: use %v shm", setting.Path("job.transport"))
	errs.Add(s.Transport == TransportMem && s.ByHand(), "job.transport", "mem is for all ranks in one process, not for a single rank")
	return errors.Join(append(errs, s.validateServers())...)
}

// validateHosts returns the errors of the hosts.
func (s *Spec) validateHosts() error {
	if s.Hosts == "" {
		return nil
	}
	var errs setting.Faults
	all, err := hosts.Parse(s.Hosts)
	errs.Add(err != nil, "job.hosts", "%w", err)
	errs.Add(err == nil && hosts.Slots(all) < s.Ranks, "job.hosts", "has places for %d ranks, but %v is %d: set the number of ranks of each host, HOST:N,HOST:N", hosts.Slots(all), setting.Path("job.ranks"), s.Ranks)
	for path, list := range map[setting.Path]string{"servers.hosts": s.Servers.Hosts, "heter.hosts": s.HeterHosts} {
		if list != "" {
			_, err := hosts.Parse(list)
			errs.Add(err != nil, path, "%w", err)
		}
	}
	errs.Add(s.Transport == TransportMem, "job.hosts", "with %v mem, which runs all ranks in one process: choose one", setting.Path("job.transport"))
	errs.Add(s.ByHand(), "job.hosts", "starts all ranks, but %v is a rank started by hand or by another launcher: choose one", setting.Path("job.rank"))
	errs.Add(rendezvous.IsBackend(s.Rendezvous), "job.rendezvous", "%s: want a HOST:PORT of this host, at which ranks on other hosts reach the launcher", s.Rendezvous)
	return errs.Err()
}

// validateServers returns the errors of the servers.
func (s *Spec) validateServers() error {
	var errs setting.Faults
	v := s.Servers
	errs.Add(v.Count < 0 || v.Count > MaxRanks, "servers.count", "%d: want 1 to %d", v.Count, MaxRanks)
	errs.Add(s.MinRanks < 0 || s.MinRanks > max(0, s.Ranks), "job.min-ranks", "%d: want 1 to %d, the number of ranks, or 0 for none", s.MinRanks, s.Ranks)
	errs.Add(s.MaxRestarts < 0, "job.max-restarts", "%d: want at least 0", s.MaxRestarts)
	for path, addrs := range map[setting.Path][]string{"ps.addresses": v.Addresses, "heter.addresses": s.HeterAddresses} {
		for _, a := range addrs {
			_, _, err := hostport.Split(a, 1)
			errs.Add(err != nil, path, "%q: %w", a, err)
		}
	}
	if !s.Sync.UsesParameterServers() {
		return errs.Err()
	}
	errs = append(errs, s.keep().CheckSettings())
	errs.Add(s.InProcess(), "sync", "%s needs ranks that are processes: leave %v mem out", s.Sync, setting.Path("job.transport"))
	n := s.Train.Heter.Count
	errs.Add(n > 0 && s.Sync == BSP && s.ContinueOnLoss(), "ps.failure-policy", "continue with heter-trainers in %s: a step is that of all trainers there, and none can be done without; use ssp, async or geo", BSP)
	errs.Add((s.ByHand() || s.HeterAddresses != nil) && len(s.HeterAddresses) != n, "heter.addresses", "has %d addresses, but %v is %d: processes started by hand need the addresses of all heter-trainers", len(s.HeterAddresses), setting.Path("heter.count"), n)
	torch := s.HeterDevice == "torch-cpu" || s.HeterDevice == "torch-cuda"
	errs.Add(s.HeterDevice != "cpu" && !torch && !strings.HasSuffix(s.HeterDevice, ".py"), "heter.device", "%q: want cpu, torch-cpu, torch-cuda, or a program in Python, FILE.py", s.HeterDevice)
	errs.Add(n > 0 && torch && s.Sync == BSP && s.Train.Optimizer == "ftrl", "heter.device", "%s: PyTorch has no optimizer %s for the heter-trainers' parameters: use cpu, or another optimizer", s.HeterDevice, s.Train.Optimizer)
	errs.Add(n > 0 && s.HeterDevice != "cpu" && s.Train.Precision == "bf16", "training.precision", "bf16 with heter.device %s, which computes in its own precision: use fp32, or cpu", s.HeterDevice)
	errs.Add(s.ByHand() && len(v.Addresses) != v.Count, "ps.addresses", "has %d addresses, but %v is %d: processes started by hand need the addresses of all servers", len(v.Addresses), setting.Path("servers.count"), v.Count)
	return errs.Err()
}

// validateWhole returns the settings that conflict with joint checkpoints of ranks and servers.
func (s *Spec) validateWhole() error {
	dir := s.Train.Checkpoint.Dir
	if dir == "" || !s.Sync.UsesParameterServers() {
		return nil
	}
	var errs setting.Faults
	errs.Add(s.ByHand(), "checkpoint.dir", "with %v %s and ranks started by hand: checkpoints of ranks and servers would not be of the same step: start all with one command, or save the servers alone (%v)", setting.Path("sync"), s.Sync, setting.Path("ps.durability"))
	errs.Add(s.ParameterServer.Dir != "", "ps.dir", "%q with %v %q: servers save in the folder of the checkpoints: remove it", s.ParameterServer.Dir, setting.Path("checkpoint.dir"), dir)
	errs.Add(s.ParameterServer.Durability == engine.Checkpoint, "ps.durability", "%s with %v: the job's checkpoints include the servers: remove it, or use wal", s.ParameterServer.Durability, setting.Path("checkpoint.dir"))
	errs.Add(s.ContinueOnLoss(), "checkpoint.dir", "with %v continue: ranks that go on without each other have no step in common to save at: let all end when one is lost", setting.Path("ps.failure-policy"))
	return errs.Err()
}

// Unused returns the explicit settings without effect: those found by the table, and settings of
// connections that the job does not have.
func (s *Spec) Unused(t *setting.Table) setting.ErrorList {
	out := t.Idle()
	given := func(p setting.Path) bool { return t.Origin(p) != "" }
	idle := func(p setting.Path, why string, args ...any) {
		if given(p) && !slices.ContainsFunc(out, func(f *setting.Error) bool { return f.Path == p }) {
			f := setting.Errorf(p, "has no effect: "+why, args...)
			f.Origin = t.Origin(p)
			out = append(out, f)
		}
	}
	for _, r := range t.Rows() {
		of := GroupOf(r.Path)
		switch {
		case of == "network" && s.InProcess():
			idle(r.Path, "ranks that are goroutines of one process make no connections")
		case s.ContinueOnLoss() && (of == "network" || slices.Contains([]setting.Path{"job.rendezvous", "job.transport", "job.collective-algorithm", "output.trace"}, r.Path)):
			idle(r.Path, "with %v continue ranks are connected to servers, and not to each other", setting.Path("ps.failure-policy"))
		}
	}
	return out
}
