package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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

// pageVar is the environment variable with the address that collects reports for the dashboard.
// Empty means no dashboard.
const pageVar = "RINGO_PAGE"

// watched runs do, and during the run answers `ringo status` and, with --http, serves the
// dashboard. Ranks that a launcher has started (workers) only run do: their launcher, which
// outlives them, answers for them. Other ranks answer themselves.
func (f *jobFlags) watched(cmd *cobra.Command, do func() error) error {
	if f.worker {
		return do()
	}
	say := tells(cmd)
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

// tellsFar starts a reporter of progress to Kubeflow Trainer in the pod of rank 0, if the TrainJob
// requests reports. Otherwise tellsFar returns nil.
func (f *jobFlags) tellsFar(h *dashboard.Collector, say func(line string)) *trainjob.Reporter {
	server, wanted, err := extenv.Status(os.LookupEnv)
	switch {
	case !wanted || f.part != nil && f.part.Rank > 0 || f.ByHand() && f.Rank > 0:
		return nil
	case err != nil:
		say(fmt.Sprintf("progress is not reported to Kubeflow Trainer: %s", oneLine(err)))
		return nil
	}
	return trainjob.Start(trainjob.Config{Server: server, Read: h.Progress, Report: say})
}

func endOf(ctx context.Context, err error) trainjob.End {
	switch {
	case err == nil:
		return trainjob.Done
	case signalled(ctx, err) != "":
		return trainjob.Stopped
	}
	return trainjob.Failed
}

// entered registers the job for `ringo status` until leave is called. Without --http, a job
// continues unregistered after an error.
func (f *jobFlags) entered() (leave func(), err error) {
	entry, err := jobregistry.Enter(jobregistry.Base())
	if err != nil {
		return func() {}, err
	}
	f.hub.Identify(entry.Name(), strings.Join(os.Args, " "), f.sight.List)
	l, err := entry.Listen()
	if err != nil {
		entry.Leave()
		return func() {}, err
	}
	f.hub.Answer(l)
	return entry.Leave, nil
}

func (f *jobFlags) jobPIDs() (pids []int) {
	for _, s := range f.sight.List() {
		if !s.Ended {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

// trackRank wraps body: the table of processes then lists the rank, a goroutine of this process.
func (f *jobFlags) trackRank(body func(*ringo.Job) error) func(*ringo.Job) error {
	if f.worker {
		return body
	}
	return func(job *ringo.Job) error {
		glance := func(phases int) (*record.Snapshot, error) { return job.Recorder().Glance(phases), nil }
		is := launch.ProcessInfo{Name: fmt.Sprintf("rank %d", job.Rank()), Role: "rank", Index: job.Rank(), PID: os.Getpid(), Glance: glance}
		f.sight.Set(job.Rank(), is)
		err := body(job)
		if is.Ended = true; err != nil {
			is.ExitStatus = "with a fault"
		}
		f.sight.Set(job.Rank(), is)
		return err
	}
}

// tellWaits appends the waits between all ranks to the output of --json. Rank 0, which writes the
// other records, has only its own waits.
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

// profiled serves a launched rank's pprof profiles to the launcher until close is called. Other
// ranks need no server here, because their own process serves --http.
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

// feed returns the rank's connection to the dashboard, or nil.
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

// connectDashboard connects the launcher and its processes to the dashboard.
func (f *jobFlags) connectDashboard(cfg *launch.Config) {
	address := ""
	if f.hub != nil {
		address, cfg.OnReport, cfg.Sight = f.hub.Address(), f.hub.AddEvent, f.sight
	}
	if token := f.answers.token; token != "" {
		cfg.Env = append(cfg.Env, launch.AdminTokenVar+"="+token)
	}
	cfg.Env = append(cfg.Env, pageVar+"="+address) // replaces the variable of a job that has started this job
}
