// Package pscmd is `ringo ps`: list, export and recover checkpoints of parameter servers.
package pscmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Command is `ringo ps`.
func Command() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "ps",
		Short: "Inspect, export or recover parameter-server checkpoints",
		Long: "Inspect, export or recover the checkpoints and logs of parameter servers in the\n" +
			"folder of --ps-dir. Only recover changes files.",
	}, showCommand(), exportCommand(), recoverCommand())
}

// oneFolder requires an argument, the --ps-dir of a job.
func oneFolder(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("`%s` takes one folder, the --ps-dir of a job, got %q", cmd.CommandPath(), args)
	}
	return nil
}

func showCommand() *cobra.Command {
	json := ""
	cmd := &cobra.Command{
		Use:     "show DIR",
		Short:   "Show the checkpoints and logs of a job's parameter servers",
		Example: "  ringo ps show DIR",
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := offline.Open(args[0])
			if err != nil {
				return err
			}
			has, err := contentsOf(j)
			if err != nil {
				return err
			}
			return cli.WithOutput(cmd, json, func(out *cli.Output) error {
				has.print(out)
				return out.Object(has)
			})
		},
	}
	cmd.Flags().StringVar(&json, "json", "", "write it as a JSON object to `FILE`, or to stdout with -")
	return cmd
}

// contents is the output of `ringo ps show`.
type contents struct {
	Dir        string   `json:"dir"`
	Job        string   `json:"job"`
	Mode       string   `json:"mode"`
	Durability string   `json:"durability"`
	Trainers   int      `json:"trainers"`
	Tables     []table  `json:"tables"`
	Arrays     []array  `json:"arrays"`
	Servers    []server `json:"servers"`
}

type table struct {
	Name string      `json:"name"`
	Dim  int         `json:"dim"`
	Rows int64       `json:"rows"`
	Rule schema.Rule `json:"rule"`
}

type array struct {
	Name string      `json:"name"`
	Len  int         `json:"values"`
	Rule schema.Rule `json:"rule"`
}

type server struct {
	Dir                   string       `json:"dir"`
	Step                  uint64       `json:"step"` // last step of any trainer, or of the run if the newest checkpoint belongs to the job
	Rows                  int64        `json:"rows"`
	UncheckpointedRecords uint64       `json:"log_records_ahead"`
	Lost                  string       `json:"log_lost,omitempty"` // loss at the end of the log, and the remedy
	Checkpoints           []checkpoint `json:"checkpoints"`
}

// checkpoint is a part of a server's newest checkpoint: the full checkpoint, or a delta.
type checkpoint struct {
	Number uint64    `json:"number"`
	Base   uint64    `json:"base"` // base of a delta, else 0
	Bytes  int64     `json:"bytes"`
	At     time.Time `json:"at"`
}

func contentsOf(j *offline.Job) (c contents, err error) {
	id := j.Servers[0].About
	c = contents{Dir: j.Dir, Job: id.Job, Mode: string(id.Mode), Durability: string(id.Durability), Trainers: id.Trainers, Tables: []table{}, Arrays: []array{}}
	for i, t := range id.Layout.Sparse {
		c.Tables = append(c.Tables, table{t.Name, t.Dim, j.Rows(i), t.Rule})
	}
	for _, d := range id.Layout.Dense {
		c.Arrays = append(c.Arrays, array{d.Name, d.Len, d.Rule})
	}
	for _, s := range j.Servers {
		has := server{Dir: s.Dir, Step: s.About.Highest, UncheckpointedRecords: s.UncheckpointedRecords}
		if s.Lost != nil {
			has.Lost = s.Lost.Error()
		}
		if s.About.Step > 0 {
			has.Step = s.About.Step
		}
		for _, n := range s.About.Rows {
			has.Rows += n
		}
		for _, point := range s.Chain {
			bytes, err := point.Bytes()
			if err != nil {
				return c, err
			}
			has.Checkpoints = append(has.Checkpoints, checkpoint{point.Number, point.Base, bytes, point.At})
		}
		c.Servers = append(c.Servers, has)
	}
	return c, nil
}

func (c *contents) print(out *cli.Output) {
	out.Line("%s: %s of job %s for %s, %s, durability %s", c.Dir, cli.Counted(len(c.Servers), "server"), c.Job, cli.Counted(c.Trainers, "trainer"), c.Mode, c.Durability)
	for _, t := range c.Tables {
		settings := ""
		if len(t.Rule.Settings) > 0 {
			settings = "; " + cli.Pairs(t.Rule.Settings, " ", ", ")
		}
		out.Line("table %s: %s of %s, %s, learning rate %s at first%s", t.Name, cli.Counted(int(t.Rows), "row"), cli.Counted(t.Dim, "weight"), t.Rule.Name, quantity.Exact(t.Rule.LR), settings)
	}
	for _, a := range c.Arrays {
		out.Line("array %s: %s, %s, learning rate %s at first", a.Name, cli.Counted(a.Len, "value"), a.Rule.Name, quantity.Exact(a.Rule.LR))
	}
	for i, s := range c.Servers {
		ahead := ""
		if s.UncheckpointedRecords > 0 {
			ahead = fmt.Sprintf("; its log is %s ahead", cli.Counted(int(s.UncheckpointedRecords), "record"))
		}
		if s.Lost != "" {
			ahead = "; " + s.Lost
		}
		out.Line("server %d: %s, after step %d%s", i, cli.Counted(int(s.Rows), "row"), s.Step, ahead)
		for _, p := range s.Checkpoints {
			kind := "whole"
			if p.Base > 0 {
				kind = fmt.Sprintf("changes since %d", p.Base)
			}
			out.Line("  checkpoint %d, %s: %s, %s", p.Number, p.At.Format(time.DateTime), kind, cli.Memory(p.Bytes))
		}
	}
}

func recoverCommand() *cobra.Command {
	var memory, disk cli.Size
	cmd := &cobra.Command{
		Use:   "recover DIR",
		Short: "Apply the logs of killed servers to their checkpoints",
		Long: "Apply the logs of killed servers (--ps-durability wal) to their checkpoints. Another job can\n" +
			"then start from them (ps.init-from), and `ringo ps export` reads all rows. The output has the\n" +
			"end of each log and the reason why the log ends there. A log that has lost changes is an\n" +
			"error. Only one server's tables are in memory at a time.",
		Example: "  ringo ps recover DIR\n  ringo train ctr-dnn … --set ps.init-from=DIR --ps-dir DIR2",
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			var faults cli.Faults
			faults.Disk(memory, disk, store.MinLimitBytes)
			if err := faults.Usage(); err != nil {
				return err
			}
			return offline.Recover(cmd.Context(), args[0], offline.Recovery{MemoryBytes: int64(memory), DiskBytes: int64(disk), Report: func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }})
		},
	}
	cmd.Flags().Var(&memory, "ps-memory", "maximum `SIZE` of the rows in memory; other rows are stored in DIR; 0: no limit")
	cmd.Flags().Var(&disk, "ps-disk", "maximum `SIZE` of the rows stored in DIR; 0: no limit")
	return cmd
}
