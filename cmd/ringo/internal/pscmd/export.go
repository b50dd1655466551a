package pscmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/server/export"
	"github.com/ringo-ml/ringo/ps/offline"
)

type exporting struct {
	table, format, out string
}

func exportCommand() *cobra.Command {
	c := &exporting{format: string(export.Text)}
	cmd := &cobra.Command{
		Use:   "export DIR --out FILE",
		Short: "Export a table's rows for serving, without optimizer state",
		Long: "Export a table's rows for serving, without optimizer state, from the newest checkpoints of\n" +
			"all servers, in no particular order. text has one line per row: the key and the weights,\n" +
			"separated by spaces. binary is little-endian:\n" +
			"\n" +
			"  \"RINGOEMB\", version (4 bytes, 1), weights per row (4)\n" +
			"  for each row: key (8), weights (float32 each)\n" +
			"  number of rows (8), CRC-32C of all preceding bytes (4)\n" +
			"\n" +
			"The file appears complete or not at all.",
		Example: "  ringo ps export DIR --out embeddings.txt\n" +
			"  ringo ps export DIR --table embeddings --format binary --out - | zstd > embeddings.zst",
		Args: oneFolder,
	}
	cmd.Flags().StringVar(&c.table, "table", "", "`NAME` of the table; required if the job has several")
	cli.Choice(cmd, &c.format, "format", "text or binary", string(export.Text), string(export.Binary))
	cmd.Flags().StringVar(&c.out, "out", "", "`FILE` for the rows, or - for stdout (required)")
	progress := cli.ProgressFlag(cmd, "rows")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := progress()
		var faults cli.Faults
		faults.Known("format", c.format, string(export.Text), string(export.Binary))
		faults.If(c.out == "", "`ringo ps export` needs --out FILE, or - for stdout")
		if faults.Error(err); len(faults) > 0 {
			return faults.Usage()
		}
		return c.run(cmd, args[0], p)
	}
	return cmd
}

func (c *exporting) run(cmd *cobra.Command, dir string, p *cli.Progress) error {
	j, err := offline.Open(dir)
	if err != nil {
		return err
	}
	table, err := j.Table(c.table)
	if err != nil {
		return err
	}
	about := j.Servers[0].About.Layout.Sparse[table]
	for _, s := range j.Servers {
		if s.UncheckpointedRecords > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "ringo: the log in %s is %s ahead of its newest checkpoint, which are left out; `ringo ps recover %s` would add them\n", s.Dir, cli.Counted(int(s.UncheckpointedRecords), "record"), dir)
		}
	}
	n, err := c.write(cmd, about.Dim, func(do func([]uint64, []float32) error) error {
		done, total := int64(0), j.Rows(table)
		return j.Each(cmd.Context(), table, func(keys []uint64, weights []float32) error {
			done += int64(len(keys))
			p.Update(about.Name, done, max(done, total))
			return do(keys, weights)
		})
	})
	p.Finish()
	if err == nil && c.out != "-" {
		fmt.Fprintf(cmd.OutOrStdout(), "%s has %s of %s with %s each\n", c.out, cli.Counted(int(n), "row"), about.Name, cli.Counted(about.Dim, "weight"))
	}
	return err
}

func (c *exporting) write(cmd *cobra.Command, dim int, rows export.Rows) (int64, error) {
	if c.out != "-" {
		return export.File(c.out, export.Format(c.format), dim, rows)
	}
	return export.Write(cmd.OutOrStdout(), export.Format(c.format), dim, rows)
}
