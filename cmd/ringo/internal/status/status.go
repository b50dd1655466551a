// Package status is `ringo status`: this user's jobs on this host as text, JSON or a live screen.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/dashboard"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/jobregistry"
	"github.com/ringo-ml/ringo/internal/cli"
)

// silent is the state of a job without a reply.
const silent = "silent"

// Command is `ringo status`.
func Command() *cobra.Command {
	json, drawn := "", false
	cmd := &cobra.Command{
		Use:   "status [JOB]",
		Short: "Show the state of your jobs on this host",
		Long: "Show the state of your jobs on this host, or of one JOB: each rank and server, the step,\n" +
			"metrics, the rate, the parts of a step's time, the ranks that wait and the awaited rank, slow\n" +
			"ranks with the reason, and recent events. JOB is the process ID of the job's launcher. Jobs\n" +
			"need no setting for this command. The exit status is 1 if no such job runs.",
		Example: "  ringo status\n  ringo status 12345 --watch\n  ringo status --json -",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if drawn && json != "" {
				return cli.Usagef("--watch draws on a terminal, and --json %s writes JSON: give one of them", json)
			}
			if drawn {
				return watch(cmd, strings.Join(args, ""))
			}
			all, err := ask(cmd.Context(), jobregistry.Base(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return cli.WithOutput(cmd, json, func(out *cli.Output) error {
				var text strings.Builder
				for i, s := range all {
					if i > 0 {
						text.WriteByte('\n')
					}
					Print(&text, s)
				}
				out.Line("%s", strings.TrimSuffix(text.String(), "\n"))
				for _, s := range all {
					if err := out.Object(s); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cli.JSON(cmd, &json, "job")
	cmd.Flags().BoolVar(&drawn, "watch", false, "draw one job with bars, once a second, on a terminal; q ends it, ? lists the keys")
	return cmd
}

func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef("`%s` takes one job, got %q", cmd.CommandPath(), args)
	}
	return nil
}

// ask requests the status of all jobs below base, or with the name's prefix. No job is an error.
func ask(ctx context.Context, base, name string) ([]dashboard.Status, error) {
	var jobs []jobregistry.Job
	for _, j := range jobregistry.Jobs(base) {
		if begin, _, _ := strings.Cut(j.Name, "-"); name == "" || name == j.Name || name == begin {
			jobs = append(jobs, j)
		}
	}
	out := make([]dashboard.Status, len(jobs))
	ctx, cancel := context.WithTimeout(ctx, jobregistry.Wait)
	defer cancel()
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { out[i] = askOne(ctx, j) })
	}
	all.Wait()
	switch {
	case len(out) > 0:
		return out, nil
	case name == "":
		return nil, errors.New("no job of yours runs on this host")
	}
	return nil, fmt.Errorf("no job of yours on this host is called %q: `ringo status` tells of all", name)
}

// askOne returns a job's status, or the reason for a missing reply.
func askOne(ctx context.Context, j jobregistry.Job) (s dashboard.Status) {
	text, err := j.Ask(ctx, "/status")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		return s
	}
	why := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		why = fmt.Sprintf("it has not answered within %v: its launcher is stopped, or has no time", jobregistry.Wait)
	case errors.Is(err, os.ErrNotExist):
		why = "it does not answer yet, or is about to end"
	}
	return dashboard.Status{Event: "status", Job: j.Name, State: silent, Figures: []dashboard.Figure{}, Processes: []dashboard.ProcessStatus{}, Tables: []dashboard.TableStatus{}, Stragglers: []dashboard.Straggler{}, Faults: []dashboard.FaultAt{{Text: why}}}
}
