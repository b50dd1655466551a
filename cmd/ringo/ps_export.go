package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/spelling"
	"github.com/ringo-ml/ringo/ps/export"
	"github.com/ringo-ml/ringo/ps/saved"
)

// psExport is `ringo ps export`.
type psExport struct {
	table, format, out, progress string
}

func newPSExport() *cobra.Command {
	c := &psExport{}
	cmd := &cobra.Command{
		Use:   "export DIR --out FILE",
		Short: "Write the rows of a table for serving, without optimizer state",
		Long: "Write the rows of a table for serving, without optimizer state: those of the newest\n" +
			"checkpoints of all servers, in no order. text has a line for each row, its key and its\n" +
			"weights with spaces between. binary is little-endian:\n\n" +
			"  \"RINGOEMB\", version (4 bytes, 1), weights in a row (4)\n" +
			"  for each row: its key (8), its weights (float32 each)\n" +
			"  number of rows (8), CRC-32C of all before (4)\n\n" +
			"A file appears whole or not at all.",
		Example: "  ringo ps export DIR --out embeddings.txt\n" +
			"  ringo ps export DIR --table embeddings --format binary --out - | zstd > embeddings.zst",
		Args: oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error { return c.execute(cmd, args[0]) },
	}
	fs := cmd.Flags()
	fs.StringVar(&c.table, "table", "", "`NAME` of the table, where there are several")
	fs.StringVar(&c.format, "format", string(export.Text), "text or binary")
	fs.StringVar(&c.out, "out", "", "`FILE` for the rows, or - for stdout (required)")
	fs.StringVar(&c.progress, "progress", "auto", "progress `style`: auto, bar, plain or none")
	return cmd
}

func (c *psExport) execute(cmd *cobra.Command, dir string) error {
	var faults faultList
	if !oneOf(c.format, string(export.Text), string(export.Binary)) {
		faults.add("--format %q is not known%s: use text or binary", c.format, spelling.Hint(c.format, "text", "binary"))
	}
	if c.out == "" {
		faults.add("`ringo ps export` needs --out FILE, or - for stdout")
	}
	style, err := progressStyle(c.progress, cmd.ErrOrStderr())
	if err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return usageError{err}
	}
	j, err := saved.Open(dir)
	if err != nil {
		return err
	}
	table, err := j.Table(c.table)
	if err != nil {
		return err
	}
	about := j.Servers[0].About.Layout.Sparse[table]
	for _, s := range j.Servers {
		if s.Ahead > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "ringo: the log in %s is %s ahead of its newest checkpoint, which are left out; `ringo ps recover %s` would add them\n", s.Dir, counted(int(s.Ahead), "record"), dir)
		}
	}
	p := &fetchProgress{style: style, out: cmd.ErrOrStderr(), unit: "rows"}
	p.columns, _ = terminalOf(cmd.OutOrStdout(), cmd.ErrOrStderr())
	n, err := c.write(cmd, about.Dim, func(do func([]uint64, []float32) error) error {
		done, total := int64(0), j.Rows(table)
		return j.Each(cmd.Context(), table, func(keys []uint64, weights []float32) error {
			done += int64(len(keys))
			p.update(about.Name, done, max(done, total))
			return do(keys, weights)
		})
	})
	p.finish()
	if err == nil && c.out != "-" {
		fmt.Fprintf(cmd.OutOrStdout(), "%s has %s of %s with %s each\n", c.out, counted(int(n), "row"), about.Name, counted(about.Dim, "weight"))
	}
	return err
}

// write writes the rows to where they shall go.
func (c *psExport) write(cmd *cobra.Command, dim int, rows export.Rows) (int64, error) {
	if c.out != "-" {
		return export.File(c.out, export.Format(c.format), dim, rows)
	}
	var w io.Writer = cmd.OutOrStdout()
	return export.Write(w, export.Format(c.format), dim, rows)
}
