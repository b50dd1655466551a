package job

import (
	"slices"
	"strings"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/setting"
)

// SettingGroup is a group of settings: a page of help, and a mapping in job files.
type SettingGroup struct {
	// Name is the path prefix of the settings; empty for settings of the whole job.
	Name string
	// About describes the settings in a few words.
	About string
}

// Groups returns all groups in display order.
func Groups() []SettingGroup {
	return []SettingGroup{
		{"", "settings of the whole job"},
		{"training", "optimizer, learning rate, batches and initial parameters"},
		{"data", "training and evaluation data"},
		{"checkpoint", "saving and resuming of the run"},
		{"job", "number, hosts and rendezvous of the ranks"},
		{"exchange", "gradient exchange: strategies, compression, buckets"},
		{"tuning", "choices by measurements"},
		{"servers", "number and hosts of aggregation servers or parameter servers"},
		{"ps", "parameter servers"},
		{"heter", "dense layers on heter-trainers"},
		{"network", "connections between hosts"},
		{"output", "reports, logs and files"},
	}
}

// GroupOf returns the name of a setting's group.
func GroupOf(p setting.Path) string {
	group, _, in := strings.Cut(string(p), ".")
	if !in {
		return ""
	}
	return group
}

// Settings returns the rows of the job, ordered by group.
func (s *Spec) Settings() []setting.Row {
	rows := slices.Concat(s.jobSettings(), s.Train.Settings(), s.processes(), s.Collective.Settings(), s.Times.Settings(), s.tuning(), s.servers(), s.ParameterServer.Settings(), s.Network.Settings(), s.output())
	at := map[string]int{}
	for i, g := range Groups() {
		at[g.Name] = i
	}
	slices.SortStableFunc(rows, func(a, b setting.Row) int { return at[GroupOf(a.Path)] - at[GroupOf(b.Path)] })
	return rows
}

func (s *Spec) jobSettings() []setting.Row {
	return []setting.Row{
		{Path: "model", Unit: "NAME", About: "model to train: `ringo help train models` lists them", Value: setting.Text(&s.Model)},
		{Path: "sync", Commands: setting.Run | setting.BenchStep | setting.Server, Flag: "sync", About: "synchronization of ranks: allreduce (ranks sum gradients), aggregate (aggregation servers sum them), or on parameter servers, which update the parameters: " +
			"bsp (by all ranks' gradients, in step), ssp (as gradients come, no rank more than ps.staleness steps ahead), async (as they come), geo (ranks update copies and exchange the changes)",
			Value: setting.Choice(&s.Sync, Syncs()...)},
		{Path: "training.seeds", Unit: "seeds", About: "number of seeds to train sequentially, from training.seed on, with mean and spread printed", Value: setting.Int(&s.Seeds)},
		{Path: "training.folds", Flag: "folds", Unit: "folds", About: "number of parts of a cross-validation: a run for each part evaluates on it and trains on the others, with mean and spread printed; 0: none", Value: setting.Int(&s.Folds)},
	}
}

func (s *Spec) processes() []setting.Row {
	return []setting.Row{
		{Path: "job.ranks", Commands: setting.AllCommands, Flag: "np", Unit: "ranks", About: "number of ranks", Value: setting.Int(&s.Ranks)},
		{Path: "job.workers", Flag: "workers", Unit: "workers", About: "number of virtual workers, at least one per rank, that define the run: its result has the same bits for any number of ranks, which may change when the run is resumed; 0: each rank is a worker", Value: setting.Int(&s.Train.Workers)},
		{Path: "job.min-ranks", Commands: setting.Run, Flag: "min-np", Unit: "ranks", About: "least number of ranks on which a job of virtual workers (job.workers, with checkpoint.dir) goes on, from its last snapshot or checkpoint and with the same result, or a program that calls ringo.torch.reform (ringo run), with the state of its other ranks, when a rank is lost or, in a job of virtual workers, gets SIGTERM: each takes one, and at the least number the rank is replaced; 0: the job ends", Scope: setting.PerProcess, Value: setting.Int(&s.MinRanks)},
		{Path: "job.rank", OneStart: true, Commands: setting.AllCommands &^ setting.Run, Flag: "rank", Unit: "rank", About: "rank to start alone, by hand, with the number of ranks, the rendezvous, and the ticket; mpirun, srun, torchrun and Kubernetes pods set it automatically", Scope: setting.PerProcess, Value: setting.Int(&s.Rank)},
		{Path: "job.rendezvous", OneStart: true, Commands: setting.AllCommands, Flag: "rendezvous", Unit: "HOST:PORT", About: "address of rank 0, HOST:PORT, for processes that ringo does not start, or the place that stores it: the absolute path of a file in a folder shared by all, or etcd://HOST:PORT/KEY", Scope: setting.PerProcess, Value: setting.Text(&s.Rendezvous)},
		{Path: "job.ticket-file", Commands: setting.AllCommands &^ setting.Run, Flag: "ticket-file", Unit: "FILE", About: "file with the job's ticket, for processes that ringo does not start, readable by you alone (ringo ticket FILE creates it), instead of RINGO_TICKET or RINGO_TICKET_FILE", Scope: setting.PerProcess, Value: setting.Text(&s.TicketFile)},
		{Path: "job.hosts", Commands: setting.AllCommands, Flag: "hosts", Unit: "HOST:N,...", About: "hosts that run ranks, started by ssh, each with its number of ranks; @FILE reads a host file in MPI's format; each host needs this program, or job.copy, and the data", Scope: setting.PerProcess, Value: setting.Text(&s.Hosts)},
		{Path: "job.ssh", Commands: setting.AllCommands, Unit: "COMMAND", About: "command that starts a program on another host, with its options, such as \"ssh -p 2222\"; default: ssh", Scope: setting.PerProcess, Needs: setting.Enabled("job.hosts"), Value: setting.Text(&s.SSH)},
		{Path: "job.copy", Commands: setting.AllCommands, About: "copying of this program to ~/.cache/ringo of each host that does not have it there", Scope: setting.PerProcess, Needs: setting.Enabled("job.hosts"), Value: setting.Bool(&s.Copy)},
		{Path: "job.max-restarts", Commands: setting.Run | setting.Server | setting.Heter, Unit: "times", About: "maximum restarts of each lost parameter server, which needs a log, and of each lost heter-trainer while another heter-trainer remains", Scope: setting.PerProcess, Needs: setting.Any(setting.Equals("ps.durability", "wal", "wal-fsync"), setting.Enabled("heter.count")), Value: setting.Int(&s.MaxRestarts)},
		{Path: "job.transport", Commands: setting.AllCommands, Flag: "transport", About: "transport between ranks: shm (a process per rank, memory shared by the ranks of one host, tcp between hosts), tcp (a process per rank), mem (goroutines of this process), " +
			"auto (mem for one rank, else shm; prints a notice if shm is not available)", Scope: setting.JobMutable,
			Value: setting.Choice(&s.Transport, TransportAuto, ringo.TransportSHM, ringo.TransportTCP, TransportMem)},
		{Path: "job.bind", Commands: setting.AllCommands, About: "binding of ranks to processors, on Linux: auto (an equal, separate share for each rank, if its threads fit and the ranks are not bound already), core (a core for each thread, or an error), none",
			Scope: setting.PerProcess, Needs: setting.NotEquals("job.transport", TransportMem), Value: setting.Choice(&s.Bind, launch.Binds()...)},
	}
}

func (s *Spec) tuning() []setting.Row {
	t := &s.Tuning
	return []setting.Row{
		{Path: "tuning.tune", Commands: setting.Bench | setting.BenchStep, Flag: "tune", About: "choices by measurement of the links and, for a plan that needs it, of the first steps; results then depend on the measurements", Value: setting.Bool(&t.Tune)},
		{Path: "tuning.profile", Commands: setting.Bench | setting.BenchStep, Flag: "cost-profile", Unit: "FILE", About: "file of measured costs: with tuning.tune rank 0 writes it, else every rank reads it and chooses by it, with the same results each time", Scope: setting.PerProcess, Value: setting.Text(&t.Profile)},
	}
}

func (s *Spec) servers() []setting.Row {
	v := &s.Servers
	kept := setting.Equals("sync", string(BSP), string(SSP), string(Async), string(Geo))
	return []setting.Row{
		{Path: "servers.count", Commands: setting.AllCommands &^ setting.Bench &^ setting.Heter, Flag: "servers", Unit: "servers", About: "number of servers; 0: 1 if the job can use a server", Needs: setting.Equals("sync", string(Aggregate), string(BSP), string(SSP), string(Async), string(Geo)), Value: setting.Int(&v.Count)},
		{Path: "servers.hosts", Commands: setting.Run | setting.Server, Unit: "HOST:N,...", About: "hosts that run servers, assigned round-robin; default: the ranks' hosts", Scope: setting.PerProcess, Needs: setting.Enabled("job.hosts"), Value: setting.Text(&v.Hosts)},
		{Path: "heter.hosts", Commands: setting.Run | setting.Heter, Unit: "HOST:N,...", About: "hosts that run heter-trainers, assigned round-robin; default: the ranks' hosts", Scope: setting.PerProcess, Needs: setting.All(setting.Enabled("job.hosts"), setting.Enabled("heter.count")), Value: setting.Text(&s.HeterHosts)},
		{Path: "heter.device", Commands: setting.Heter, Unit: "DEVICE", About: "device on which heter-trainers compute: cpu; torch-cpu or torch-cuda, by PyTorch; or FILE.py, a program that calls ringo.torch.serve_part; all but cpu need Python with PyTorch and ringo's package", Scope: setting.PerProcess, Needs: setting.Enabled("heter.count"), Value: setting.Text(&s.HeterDevice)},
		{Path: "heter.addresses", Commands: setting.Heter, Unit: "HOST:PORT,...", About: "addresses of the heter-trainers, for ranks and heter-trainers started by hand", Scope: setting.PerProcess, Needs: setting.Enabled("heter.count"), Value: setting.List(&s.HeterAddresses)},
		{Path: "ps.addresses", OneStart: true, Commands: setting.Server, Flag: "ps-addresses", Unit: "HOST:PORT,...", About: "addresses of the parameter servers, for ranks and servers started by hand", Scope: setting.PerProcess, Needs: kept, Value: setting.List(&v.Addresses)},
	}
}

func (s *Spec) output() []setting.Row {
	o := &s.Output
	return []setting.Row{
		{Path: "output.black-box", OneStart: true, Unit: "DIR", About: "folder for files that show the activity of every process when a process ended unexpectedly; none: no files; default: ringo-blackbox-UID in the system's folder for temporary files", Scope: setting.PerProcess, Value: setting.Text(&o.BlackBox)},
		{Path: "output.json", OneStart: true, Commands: setting.Eval, Flag: "json", Unit: "FILE", About: "file for one JSON object per epoch and a summary; -: standard output", Scope: setting.PerProcess, Value: setting.Text(&o.JSON)},
		{Path: "output.log-dir", Commands: setting.Run, Flag: "log-dir", Unit: "DIR", About: "folder for a copy of the output of each rank and server in a separate file, such as rank-3.log", Scope: setting.PerProcess, Needs: setting.NotEquals("job.transport", TransportMem), Value: setting.Text(&o.LogDir)},
		{Path: "output.http", OneStart: true, Commands: setting.Run | setting.Server, Flag: "http", Unit: "HOST:PORT", About: "address of this host that serves a dashboard, profiles, commands for parameter servers and, without the token that is printed at the start, /metrics and /healthz; no HOST: 127.0.0.1; port 0: any free one", Scope: setting.PerProcess, Value: setting.Text(&o.HTTP)},
		{Path: "output.progress", OneStart: true, Commands: setting.Ranks, Flag: "progress", About: "progress output; auto: a bar on a terminal, else plain lines", Scope: setting.PerProcess, Value: setting.Choice(&o.Progress, "auto", "bar", "plain", "none")},
		{Path: "output.tensorboard", OneStart: true, Flag: "tensorboard", Unit: "DIR", About: "folder for event files with the metrics of steps and epochs, for TensorBoard", Scope: setting.PerProcess, Value: setting.Text(&o.TensorBoard)},
		{Path: "output.trace", OneStart: true, Commands: setting.BenchStep, Flag: "trace", Unit: "FILE", About: "file for a timeline of the first 200 steps of all ranks in Chrome's trace format; ui.perfetto.dev opens it", Scope: setting.JobMutable, Value: setting.Text(&o.Trace)},
	}
}
