package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/jobregistry"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/trainjob"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/launch/extenv"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// pageVar holds, in the environment of a launcher's processes, where they tell what its page shows; empty: nowhere.
const pageVar = "RINGO_PAGE"

// watched does what a job of this process, or a rank that nobody launched, does, and tells meanwhile who asks on this host what that is, and
// who looks at its page, where it has one. Its place is the process that sees all ranks of the host and outlives
// them: the launcher, or of ranks that are goroutines or started by hand their own.
func (f *jobFlags) watched(cmd *cobra.Command, do func() error) error {
	if f.worker {
		return do()
	}
	say := func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
	h := dashboard.NewHub()
	f.hub, f.sight = h, new(launch.ProcessTable)
	h.Owns(f.jobPIDs)
	leave, err := f.entered()
	if err != nil && f.Output.HTTP != "" {
		return setting.Errorf("output.http", "ranks cannot report to the dashboard: %w", err)
	}
	if f.answers, err = f.answer(cmd, h); err != nil {
		leave()
		h.Close(err)
		return err
	}
	if f.Output.HTTP != "" {
		h.AskServers(cmd.Context(), f.ParameterServers())
	}
	far := f.tellsFar(h, say)
	err = do()
	far.Close(endOf(cmd.Context(), err))
	if f.Output.HTTP != "" && !(f.ByHand() && f.Rank > 0) {
		err = errors.Join(err, f.tellWaits(cmd, h))
	}
	leave()
	h.Close(err)
	f.answers.end()
	return err
}

// tellsFar tells Kubeflow Trainer how far the job is, where this is a pod of a TrainJob that wants that, and has rank 0; else it is nil.
func (f *jobFlags) tellsFar(h *dashboard.Collector, say func(line string)) *trainjob.Reporter {
	server, wanted, err := extenv.Status(os.LookupEnv)
	switch {
	case !wanted || f.part != nil && f.part.Rank > 0 || f.ByHand() && f.Rank > 0:
		return nil
	case err != nil:
		say(fmt.Sprintf("Kubeflow Trainer is not told how far the job is: %s", oneLine(err)))
		return nil
	}
	return trainjob.Start(trainjob.Config{Server: server, Read: h.Progress, Report: say})
}

// endOf is how a job has ended.
func endOf(ctx context.Context, err error) trainjob.End {
	switch {
	case err == nil:
		return trainjob.Done
	case signalled(ctx, err) != "":
		return trainjob.Stopped
	}
	return trainjob.Failed
}

// entered enters the job where `ringo status` finds it, until leave is called. After an error the
// job goes on unseen.
func (f *jobFlags) entered() (leave func(), err error) {
	entry, err := jobregistry.Enter(jobregistry.Base())
	if err != nil {
		return func() {}, err
	}
	f.hub.Identify(entry.Name(), strings.Join(os.Args, " "), f.look)
	l, err := entry.Listen()
	if err != nil {
		entry.Leave()
		return func() {}, err
	}
	f.hub.Answer(l)
	return entry.Leave, nil
}

// jobPIDs are the processes that this launcher has started and that run.
func (f *jobFlags) jobPIDs() (pids []int) {
	for _, s := range f.sight.List() {
		if !s.Ended {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

// look sees the job's processes: those that this launcher has started, or the ranks that are goroutines of this process.
func (f *jobFlags) look() []launch.ProcessInfo {
	if seen := f.sight.List(); len(seen) > 0 {
		return seen
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ranks)
}

// trackRank is body of a rank of this process, which look sees.
func (f *jobFlags) trackRank(body func(*ringo.Job) error) func(*ringo.Job) error {
	if f.worker {
		return body
	}
	return func(job *ringo.Job) error {
		glance := func(phases int) (*record.Snapshot, error) { return job.Recorder().Glance(phases), nil }
		is := launch.ProcessInfo{Name: fmt.Sprintf("rank %d", job.Rank()), Role: "rank", Index: job.Rank(), PID: os.Getpid(), Glance: glance}
		f.sees(is)
		err := body(job)
		if is.Ended = true; err != nil {
			is.ExitStatus = "with a fault"
		}
		f.sees(is)
		return err
	}
}

// sees notes a rank of this process, in the place of the one before it.
func (f *jobFlags) sees(is launch.ProcessInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, known := slices.BinarySearchFunc(f.ranks, is.Index, func(s launch.ProcessInfo, rank int) int { return s.Index - rank })
	if !known {
		f.ranks = slices.Insert(f.ranks, at, is)
	}
	f.ranks[at] = is
}

// tellWaits writes who waited for whom behind the records of the run, which rank 0 has written: it knows its own waits alone.
func (f *jobFlags) tellWaits(cmd *cobra.Command, h *dashboard.Collector) error {
	w, ok := h.Waits()
	if !ok || f.Output.JSON == "" {
		return nil
	}
	if f.Output.JSON == "-" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(w)
	}
	file, err := os.OpenFile(f.Output.JSON, os.O_APPEND|os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no run has begun
	}
	if err == nil {
		err = errors.Join(json.NewEncoder(file).Encode(w), file.Close())
	}
	if err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// profiled serves the profiles of a rank that is a process of its own to its launcher, until close
// is called. By hand the rank has its own address, and ranks that are goroutines have their
// process's.
func (f *jobFlags) profiled(rank int) (close func() error, err error) {
	address, _ := os.LookupEnv(pageVar)
	if f.Output.HTTP == "" || !f.worker || address == "" {
		return func() error { return nil }, nil
	}
	s, err := dashboard.AnswerAs(address, "rank", rank, dashboard.Profiles())
	if err != nil {
		return nil, setting.Errorf("output.http", "of rank %d: %w", rank, err)
	}
	return s.Close, nil
}

// feed is what a rank tells the page by; nil where there is none.
func (f *jobFlags) feed() *dashboard.Exporter {
	if f.hub != nil {
		return f.hub.Feed()
	}
	address, _ := os.LookupEnv(pageVar)
	if !f.worker || address == "" {
		return nil
	}
	return dashboard.Dial(address)
}

// connectDashboard lets a launcher's processes, and the launcher, tell the page.
func (f *jobFlags) connectDashboard(cfg *launch.Config) {
	address := ""
	if f.hub != nil {
		address, cfg.OnReport, cfg.Sight = f.hub.Address(), f.hub.AddEvent, f.sight
	}
	if token := f.answers.token; token != "" {
		cfg.Env = append(cfg.Env, launch.AdminTokenVar+"="+token)
	}
	cfg.Env = append(cfg.Env, pageVar+"="+address) // another job's, which has started this one, is not ours
}
