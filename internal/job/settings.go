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
		{"", "the whole job"},
		{"training", "how the model is trained"},
		{"data", "what it is trained on"},
		{"checkpoint", "saving and resuming"},
		{"job", "which ranks there are, and how they meet"},
		{"exchange", "what ranks exchange: strategies, compression, buckets"},
		{"tuning", "choosing by what is measured"},
		{"servers", "servers that sum gradients or keep parameters"},
		{"ps", "servers that keep parameters"},
		{"heter", "dense layers on heter-trainers"},
		{"network", "connections between hosts"},
		{"output", "what is told and written"},
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
		{Path: "model", Unit: "NAME", About: "the model that is trained: `ringo help train models` lists them", Value: setting.Text(&s.Model)},
		{Path: "sync", Commands: setting.Run | setting.BenchStep | setting.Server, Flag: "sync", About: "how ranks agree: allreduce (they sum gradients), sum (servers sum them), or servers keep the parameters and update them: " +
			"bsp (by all ranks' gradients, in step), ssp (as gradients come, no rank more than ps.staleness steps ahead), async (as they come), geo (ranks move copies and exchange by how much)",
			Value: setting.Choice(&s.Sync, Syncs()...)},
		{Path: "training.seeds", Unit: "seeds", About: "how many seeds are trained one after the other, from the first on, with mean and spread told", Value: setting.Int(&s.Seeds)},
	}
}

func (s *Spec) processes() []setting.Row {
	return []setting.Row{
		{Path: "job.ranks", Commands: setting.AllCommands, Flag: "np", Unit: "ranks", About: "number of ranks (workers)", Value: setting.Int(&s.Ranks)},
		{Path: "job.rank", OneStart: true, Commands: setting.AllCommands &^ setting.Run, Flag: "rank", Unit: "rank", About: "start only this rank, by hand: with the number of ranks, the rendezvous, and the ticket; mpirun, srun, torchrun and pods of Kubernetes say it themselves", Scope: setting.PerProcess, Value: setting.Int(&s.Rank)},
		{Path: "job.rendezvous", OneStart: true, Commands: setting.AllCommands, Flag: "rendezvous", Unit: "HOST:PORT", About: "where rank 0 meets the others, for processes that ringo does not start: its HOST:PORT; or where it says that: the absolute path of a file on a folder that all have, or etcd://HOST:PORT/KEY", Scope: setting.PerProcess, Value: setting.Text(&s.Rendezvous)},
		{Path: "job.ticket-file", Commands: setting.AllCommands &^ setting.Run, Flag: "ticket-file", Unit: "FILE", About: "the file with the job's ticket, for processes that ringo does not start, which only you may read (ringo ticket FILE makes it), in place of RINGO_TICKET or RINGO_TICKET_FILE", Scope: setting.PerProcess, Value: setting.Text(&s.TicketFile)},
		{Path: "job.hosts", Commands: setting.AllCommands, Flag: "hosts", Unit: "HOST:N,...", About: "the hosts on which ranks are started, by ssh, and how many each takes; @FILE reads a host file as MPI has it; each needs this program, or job.copy, and the data", Scope: setting.PerProcess, Value: setting.Text(&s.Hosts)},
		{Path: "job.ssh", Commands: setting.AllCommands, Unit: "COMMAND", About: "the command that starts a program on another host, with its options, such as \"ssh -p 2222\"; default: ssh", Scope: setting.PerProcess, Needs: setting.Enabled("job.hosts"), Value: setting.Text(&s.SSH)},
		{Path: "job.copy", Commands: setting.AllCommands, About: "copy this program to ~/.cache/ringo of each host that does not have it there", Scope: setting.PerProcess, Needs: setting.Enabled("job.hosts"), Value: setting.Bool(&s.Copy)},
		{Path: "job.max-restarts", Commands: setting.Run | setting.Server | setting.Heter, Unit: "times", About: "maximum restarts of each lost parameter server, which needs a log, and of each lost heter-trainer while another one remains", Scope: setting.PerProcess, Needs: setting.Any(setting.Equals("ps.durability", "wal"), setting.Enabled("heter.count")), Value: setting.Int(&s.MaxRestarts)},
		{Path: "job.transport", Commands: setting.AllCommands, Flag: "transport", About: "how ranks talk: shm (a process per rank, memory shared by those of one host, tcp between hosts), tcp (a process per rank), mem (goroutines of this process), " +
			"auto (mem for one rank, else shm; says so where that is not to be had)", Scope: setting.JobMutable,
			Value: setting.Choice(&s.Transport, TransportAuto, ringo.TransportSHM, ringo.TransportTCP, TransportMem)},
		{Path: "job.bind", Commands: setting.AllCommands, About: "whether ranks are bound to processors, on Linux: auto (each to as many of its own as there are for all, where their threads fit and nobody has bound them already), core (a core for each thread, or an error), none",
			Scope: setting.PerProcess, Needs: setting.NotEquals("job.transport", TransportMem), Value: setting.Choice(&s.Bind, launch.Binds()...)},
	}
}

func (s *Spec) tuning() []setting.Row {
	t := &s.Tuning
	return []setting.Row{
		{Path: "tuning.tune", Commands: setting.Bench | setting.BenchStep, Flag: "tune", About: "measure the links and, for a plan that needs it, the first steps, and choose by that; results then depend on what was measured", Value: setting.Bool(&t.Tune)},
		{Path: "tuning.profile", Commands: setting.Bench | setting.BenchStep, Flag: "cost-profile", Unit: "FILE", About: "file of measured costs: with tuning.tune rank 0 writes it, else every rank reads it and chooses by it, with the same results each time", Scope: setting.PerProcess, Value: setting.Text(&t.Profile)},
	}
}

func (s *Spec) servers() []setting.Row {
	v := &s.Servers
	kept := setting.Equals("sync", string(BSP), string(SSP), string(Async), string(Geo))
	return []setting.Row{
		{Path: "servers.count", Commands: setting.AllCommands &^ setting.Bench &^ setting.Heter, Flag: "servers", Unit: "servers", About: "number of servers; 0: one where there is any use for it", Needs: setting.Equals("sync", string(Sum), string(BSP), string(SSP), string(Async), string(Geo)), Value: setting.Int(&v.Count)},
		{Path: "servers.hosts", Commands: setting.Run | setting.Server, Unit: "HOST:N,...", About: "the hosts on which servers are started, in turn; default: those of the ranks", Scope: setting.PerProcess, Needs: setting.Enabled("job.hosts"), Value: setting.Text(&v.Hosts)},
		{Path: "heter.hosts", Commands: setting.Run | setting.Heter, Unit: "HOST:N,...", About: "the hosts on which heter-trainers are started, in turn; default: those of the ranks", Scope: setting.PerProcess, Needs: setting.All(setting.Enabled("job.hosts"), setting.Enabled("heter.count")), Value: setting.Text(&s.HeterHosts)},
		{Path: "heter.addresses", Commands: setting.Heter, Unit: "HOST:PORT,...", About: "where the heter-trainers listen, for ranks and heter-trainers started by hand", Scope: setting.PerProcess, Needs: setting.Enabled("heter.count"), Value: setting.List(&s.HeterAddresses)},
		{Path: "ps.addresses", OneStart: true, Commands: setting.Server, Flag: "ps-addresses", Unit: "HOST:PORT,...", About: "where the servers listen that keep parameters, for ranks and servers started by hand", Scope: setting.PerProcess, Needs: kept, Value: setting.List(&v.Addresses)},
	}
}

func (s *Spec) output() []setting.Row {
	o := &s.Output
	return []setting.Row{
		{Path: "output.black-box", OneStart: true, Unit: "DIR", About: "folder of files that show what every process was doing when one ended unexpectedly; none: nowhere; default: ringo-blackbox-UID in the system's folder for temporary files", Scope: setting.PerProcess, Value: setting.Text(&o.BlackBox)},
		{Path: "output.json", OneStart: true, Commands: setting.Eval, Flag: "json", Unit: "FILE", About: "write one JSON object per epoch and a summary to a file, or to standard output with -", Scope: setting.PerProcess, Value: setting.Text(&o.JSON)},
		{Path: "output.log-dir", Commands: setting.Run, Flag: "log-dir", Unit: "DIR", About: "write what each rank and server prints to a file of its own, too, such as rank-3.log", Scope: setting.PerProcess, Needs: setting.NotEquals("job.transport", TransportMem), Value: setting.Text(&o.LogDir)},
		{Path: "output.http", OneStart: true, Commands: setting.Run | setting.Server, Flag: "http", Unit: "HOST:PORT", About: "address of this host that serves a dashboard, profiles, commands for parameter servers and, without the token that is printed at the start, /metrics and /healthz; no HOST: 127.0.0.1; port 0: any free one", Scope: setting.PerProcess, Value: setting.Text(&o.HTTP)},
		{Path: "output.progress", OneStart: true, Commands: setting.Ranks, Flag: "progress", About: "how progress is shown; auto: a bar where a person watches, else plain lines", Scope: setting.PerProcess, Value: setting.Choice(&o.Progress, "auto", "bar", "plain", "none")},
		{Path: "output.tensorboard", OneStart: true, Flag: "tensorboard", Unit: "DIR", About: "write the figures of steps and epochs as event files into a folder, for TensorBoard", Scope: setting.PerProcess, Value: setting.Text(&o.TensorBoard)},
		{Path: "output.trace", OneStart: true, Commands: setting.BenchStep, Flag: "trace", Unit: "FILE", About: "write a timeline of the first 200 steps of all ranks to a file in Chrome's trace format: ui.perfetto.dev opens it", Scope: setting.JobMutable, Value: setting.Text(&o.Trace)},
	}
}
