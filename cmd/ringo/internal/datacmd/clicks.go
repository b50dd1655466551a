package datacmd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// making is what rows of clicks to make.
type making struct {
	// schema names the layout, and dir is the folder that gets the files.
	schema, dir string
	rows        int64
	// values and zipf are those of slots of which the layout says nothing.
	values int64
	zipf   float64
	seed   uint64
	// files is how many files the rows of train lie in, and file the one that this process makes; -1: all of them.
	files, file int
	layout      *layout.Layout
}

// clicks is the command that makes rows of clicks by a layout.
func clicks() *cobra.Command {
	m := making{values: 100_000, zipf: 1.05, seed: 1, files: 1, file: -1}
	cmd := &cobra.Command{
		Use:   "clicks --layout FILE --generate ROWS --out DIR",
		Short: "Generate click rows by a layout, with Zipf-distributed keys",
		Long: `Generate click rows by a layout: train with ROWS rows, and test with a
tenth of that, 100,000 at most. Values of each slot follow Zipf's law; how many
there are, how hot, and how many a bag has, each column's "make" says in the
layout, or --values and --zipf. Clicks, one in four, are drawn from a logistic
model with a hidden weight for each value: its AUC, which no model beats, is told.
Rows are the same bytes on every machine. With --files they lie in so many files
of a folder, and --file makes one of these alone, for several processes.`,
		Example: "  ringo data clicks --layout movielens --generate 1M --out clicks\n" +
			"  ringo data clicks --layout mlperf --generate 1G --files 64 --file 5 --out clicks\n" +
			"  ringo train dlrm --data clicks --layout mlperf --stream --np 2",
		Args: cli.NoArguments,
	}
	fs := cmd.Flags()
	fs.StringVar(&m.schema, "layout", "", "`FILE`, or name, of the layout (required)")
	cli.Former(fs, "schema", "layout")
	fs.StringVar(&m.dir, "out", "", "`DIR` for the files (required)")
	fs.Var((*cli.Count)(&m.rows), "generate", "make so many `ROWS` (10M, 500k; required)")
	fs.Var((*cli.Count)(&m.values), "values", "so many `VALUES` (1M) of each slot, where the layout says nothing")
	fs.Float64Var(&m.zipf, "zipf", m.zipf, "the `EXPONENT` of Zipf's law, where the layout says nothing")
	fs.Uint64Var(&m.seed, "seed", m.seed, "`SEED` of the rows; the same one gives the same files")
	fs.IntVar(&m.files, "files", m.files, "so many `FILES` in DIR/train, instead of one file")
	fs.IntVar(&m.file, "file", m.file, "make file `K` of --files alone, from 0; file 0 makes test, too")
	fs.Lookup("file").DefValue = ""
	progress := cli.ProgressFlag(cmd, "rows")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := m.check(cmd); err != nil {
			return err
		}
		p, err := progress()
		if err != nil {
			return err
		}
		return m.run(cmd, p)
	}
	return cmd
}

func (m *making) check(cmd *cobra.Command) (err error) {
	switch {
	case m.schema == "" || m.dir == "" || m.rows == 0:
		return cli.Usagef("`ringo data clicks` needs --layout FILE, --generate ROWS and --out DIR")
	case m.values < 1:
		return cli.Usagef("--values %d: want at least 1", m.values)
	case m.files < 1 || m.files > 100_000:
		return cli.Usagef("--files %d: want 1 to 100,000", m.files)
	case cmd.Flags().Changed("file") && (m.file < 0 || m.file >= m.files):
		return cli.Usagef("--file %d of --files %d: want one from 0 to %d", m.file, m.files, m.files-1)
	}
	if m.layout, err = layout.Open(m.schema); err != nil {
		return cli.Usagef("--layout: %w", err)
	}
	return nil
}

// clickFile is a file to make.
type clickFile struct {
	path string
	rows int64
	// first is the number of its first row among those of its part: rows of train are part 0, of test part 1.
	first int64
	part  uint64
}

// list are the files of this process. Each but for the last has whole blocks of rows.
func (m *making) list() (out []clickFile) {
	ending := ".tsv"
	if m.layout.Separator == "," {
		ending = ".csv"
	}
	const block = 2048
	blocks := (m.rows + block - 1) / block
	for k := range int64(m.files) {
		lo, hi := blocks*k/int64(m.files)*block, min(m.rows, blocks*(k+1)/int64(m.files)*block)
		f := clickFile{filepath.Join(m.dir, "train"+ending), hi - lo, lo, 0}
		if m.files > 1 {
			f.path = filepath.Join(m.dir, "train", fmt.Sprintf("part-%05d%s", k, ending))
		}
		if (m.file < 0 || int64(m.file) == k) && f.rows > 0 {
			out = append(out, f)
		}
	}
	if m.file <= 0 {
		out = append(out, clickFile{filepath.Join(m.dir, "test"+ending), min(max(m.rows/10, 1), 100_000), 0, 1})
	}
	return out
}

// run writes the files.
func (m *making) run(cmd *cobra.Command, p *cli.Progress) error {
	maker, err := data.NewClickGenerator(m.layout, uint64(m.values), m.zipf)
	if err != nil {
		return cli.Usagef("--layout: %w", err)
	}
	files := m.list()
	for _, f := range files {
		if _, err := os.Stat(f.path); err == nil {
			return fmt.Errorf("%s is there already: remove it or choose another --out", f.path)
		}
	}
	var truth data.ClickTruth
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o777); err != nil {
			return err
		}
		cfg := data.GenerateConfig{
			Rows: f.rows, First: f.first, Seed: m.seed, Part: f.part, Threads: runtime.GOMAXPROCS(0),
			Progress: func(rows int64) { p.Update(filepath.Base(f.path), rows, f.rows) },
		}
		err := writeWhole(f.path, func(w io.Writer) (err error) {
			truth, err = maker.Write(cmd.Context(), w, cfg)
			return err
		})
		p.Finish()
		if err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	if m.file > 0 {
		fmt.Fprintf(out, "file %d of %d is in %s\n", m.file, m.files, m.dir)
		return nil
	}
	model := "wide-deep"
	stream := ""
	if m.files > 1 {
		stream = " --stream"
	}
	fmt.Fprintf(out, "the best of all models has AUC %.5f and log-loss %.5f on the %s rows of %s, %s of them clicks\n", truth.AUC, truth.LogLoss,
		cli.Grouped(int(truth.Rows)), files[len(files)-1].path, quantity.Percent(float64(truth.Clicks)/float64(truth.Rows)))
	fmt.Fprintf(out, "%s rows are in %s; train with `ringo train %s --data %s --layout %s%s`\n", cli.Grouped(int(m.rows)), m.dir, model, m.dir, m.schema, stream)
	return nil
}
