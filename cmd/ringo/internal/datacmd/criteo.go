package datacmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/data/clicks"
)

// criteo returns the command that downloads the sample, or generates similar rows.
func criteo(s set) *cobra.Command {
	cmd, progress := s.command()
	cmd.Use = "criteo --out DIR [--generate ROWS --like FILE]"
	cmd.Long = `Download Criteo's sample of 100,000 rows, and write it as train.tsv and test.tsv, the last
tenth. Or with --generate ROWS generate train.tsv with ROWS rows and test.tsv with a tenth as
many, at most 100,000, with the column statistics of the file --like: the share of missing
values, quantiles of counts, frequencies of categories, the rate of new values and the share
of clicks. Clicks depend on hidden weights of the columns, so that models can learn; the
columns are independent of each other. For categories by Zipf's law use
"ringo data clicks --layout criteo".`
	cmd.Example = "  ringo data criteo --out criteo\n" +
		"  ringo data criteo --generate 10M --like criteo/train.tsv --out criteo-10m\n" +
		"  ringo train ctr-dnn --data criteo-10m --np 2"
	var g generation
	fetch := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := cmd.Flag("out").Value.String()
		if err := g.check(cmd, dir); err != nil {
			return err
		}
		if g.rows == 0 {
			return fetch(cmd, args)
		}
		p, err := progress()
		if err != nil {
			return err
		}
		p.Unit = "rows"
		return g.run(cmd, dir, p)
	}
	cmd.Flags().Var((*cli.Count)(&g.rows), "generate", "generate `ROWS` rows, such as 10M or 500k, instead of a download")
	cmd.Flags().StringVar(&g.like, "like", "", "`FILE` with rows for the statistics of generated rows")
	cmd.Flags().Uint64Var(&g.seed, "seed", 1, "`SEED` of generated rows; the same seed generates the same files")
	return cmd
}

// generation is the flags for generating rows.
type generation struct {
	rows int64
	like string
	seed uint64
}

func (g *generation) check(cmd *cobra.Command, dir string) error {
	switch {
	case g.rows == 0 && (g.like != "" || cmd.Flags().Changed("seed")):
		return cli.Usagef("--like and --seed belong to --generate ROWS")
	case g.rows > 0 && g.like == "":
		return cli.Usagef("--generate needs --like FILE, the rows whose statistics to take")
	case g.rows > 0 && dir == "":
		return cli.Usagef("--generate needs --out DIR, the folder for the files")
	case g.rows > 0 && cmd.Flags().Changed("mirror"):
		return cli.Usagef("--mirror is for fetching; --generate fetches nothing")
	}
	return nil
}

func (g *generation) run(cmd *cobra.Command, dir string, p *cli.Progress) error {
	files := []clickFile{{filepath.Join(dir, "train.tsv"), g.rows, 0, 0}, {filepath.Join(dir, "test.tsv"), testRows(g.rows), 0, 1}}
	if err := absent(files); err != nil {
		return err
	}
	model, err := clicks.LearnCriteo(g.like)
	if err != nil {
		return fmt.Errorf("--like: %w", err)
	}
	write := func(w io.Writer, cfg clicks.GenerateConfig) error { return model.Write(cmd.Context(), w, cfg) }
	if err := generate(files, g.seed, p, write); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s rows like %s are in %s; train with `ringo train ctr-dnn --data %s`\n", cli.Grouped(int(g.rows)), g.like, dir, dir)
	return nil
}

// writeWhole writes a file atomically; a failure leaves no file.
func writeWhole(path string, write func(io.Writer) error) error {
	part := path + ".part"
	out, err := os.Create(part)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	if err = errors.Join(write(w), w.Flush(), out.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(part))
	}
	return nil
}
