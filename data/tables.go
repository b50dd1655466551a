package data

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// maxTable limits the bytes of a table's samples in memory.
const maxTable = 1 << 36

// endings maps file extensions, compressed or not, to sets.
var endings = map[string]string{ // constant
	".csv": "table", ".tsv": "table", ".data": "table", ".txt": "table", ".parquet": "table", ".arrow": "table", ".arrows": "table", ".feather": "table",
	".npz": "arrays", ".npy": "arrays",
}

// NameOf returns the name of the set for the files' extensions or, if these are unknown, usual, the
// model's default set.
func NameOf(usual string, c Config) string {
	if c.Encoder != nil {
		return "table"
	}
	if c.Layout != "" {
		return "clicks"
	}
	if usual == "criteo" || usual == "text" || usual == "chars" { // files with any name
		return usual
	}
	for _, path := range []string{c.Dir, c.TrainFile} {
		if name, ok := endings[ending(path)]; ok {
			return name
		}
		if images.IsShards(path) {
			return "shards"
		}
		if usual == "mnist" && images.IsIDX(path) {
			return usual // the error then has the folder's path
		}
		if images.IsImage(path) && datafile.IsFile(path) {
			return "images" // of a prediction
		}
		if isParts(path) || datafile.IsFile(path) && !datafile.IsArchive(path) { // no set matches, but a table's errors have remedies
			return "table"
		}
	}
	return usual
}

// ending returns a file's extension, without the extension of the compression.
func ending(path string) string {
	plain, _ := datafile.UnpackedName(strings.ToLower(path))
	return filepath.Ext(plain)
}

// oneFile returns the file of a set, by extension, and the evaluation file if any.
func oneFile(set string, c Config) (train, eval string, err error) {
	train = c.TrainFile
	if train == "" {
		train = c.Dir
	} else if c.Dir != "" {
		return "", "", setting.Errorf(datafile.TrainFilePath, "%s with %v %s: name one of both", c.TrainFile, datafile.DirPath, c.Dir)
	}
	if c.EvalFile != "" {
		if err := c.checkHoldout("the evaluation samples are given by %v %s", datafile.EvalFilePath, c.EvalFile); err != nil {
			return "", "", err
		}
	}
	for _, path := range []string{train, c.EvalFile} {
		if path == "" {
			continue
		}
		if set == "table" && datafile.IsFolder(path) {
			if _, err := partsOf(path); err != nil {
				return "", "", fmt.Errorf("table: %w", err)
			}
			continue
		}
		if _, err := pathname.Check(path); err != nil {
			return "", "", fmt.Errorf("%s: %w", set, err)
		}
		if endings[ending(path)] != set {
			return "", "", fmt.Errorf("%s: %s: want a name that ends in %s%s", set, path, endingsOf(set), converted(path))
		}
	}
	return train, c.EvalFile, nil
}

// endingsOf returns the file extensions of a set.
func endingsOf(set string) string {
	var all []string
	for e, of := range endings {
		if of == set {
			all = append(all, e)
		}
	}
	slices.Sort(all)
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

func findTable(c Config) error {
	_, _, err := oneFile("table", c)
	return err
}

// OpenTable opens a file of rows by extension: .parquet is Parquet; .arrow, .arrows and .feather
// are Arrow; other files are text, compressed or not. Parquet and Arrow need a binary built with
// data/parquet. A folder of such files is one table.
func OpenTable(path string) (table.Reader, error) {
	if datafile.IsFolder(path) {
		return openParts(path)
	}
	if _, err := pathname.Check(path); err != nil {
		return nil, err // missing files have precedence over missing formats
	}
	switch end := strings.ToLower(filepath.Ext(path)); {
	case end == ".parquet":
		return openParquet(path)
	case ending(path) == ".parquet":
		return nil, fmt.Errorf("%s: unpack it first: Parquet is compressed inside", path)
	case datafile.IsArrow(end):
		return openArrow(path)
	case datafile.IsArrow(ending(path)):
		return nil, fmt.Errorf("%s: unpack it first: Arrow can be compressed inside", path)
	}
	in, err := table.OpenCSV(path, func() (io.ReadCloser, error) { return datafile.OpenText(path) })
	if err != nil {
		return nil, err
	}
	return in, nil
}

// openTable reads a table in two passes: one surveys the columns, the other encodes the rows.
func openTable(c Config, bad *datafile.Skips) (*Dataset, error) {
	path, evalPath, err := oneFile("table", c)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return wholeTable(c, evalPath, bad)
	}
	in, err := OpenTable(path)
	if err != nil {
		return nil, err
	}
	var share holdout
	if evalPath == "" {
		share = c.holdout()
	}
	heldOut := func(row int64) bool { return share.holds(uint64(row)) }
	enc, skip := c.Encoder, bad.SkipOnce()
	if enc == nil {
		enc, err = table.InferEncoder(in, table.Options{Target: c.Target, Schema: c.Schema, MinCount: c.MinCount, Gather: c.Gather, Previous: c.Previous, Resumed: c.Resumed}, heldOut, skip)
		if err != nil {
			return nil, err
		}
	}
	var train, eval table.Samples
	err = enc.Encode(in, true, maxTable, func(row int64) *table.Samples {
		if heldOut(row) {
			return limited(&eval, c.EvalLimit)
		}
		return limited(&train, c.TrainLimit)
	}, skip)
	rows := [2]tableRows{{in, func(row int64) bool { return !heldOut(row) }}, {in, heldOut}}
	if err == nil && evalPath != "" {
		rows[1].all = func(int64) bool { return true }
		rows[1].Reader, err = encodeOther(enc, evalPath, &eval, c.EvalLimit, bad)
	}
	if err != nil {
		return nil, err
	}
	set, err := tableSet(enc, in, &train, &eval, share)
	if err == nil && c.Encoder != nil {
		set.newWords(&train)
	}
	if err == nil && len(bad.LeftOut()) == 0 {
		set.rows = rows
	}
	return set, err
}

// wholeTable returns the set of all rows of a file, for evaluation with an existing encoder.
func wholeTable(c Config, path string, bad *datafile.Skips) (*Dataset, error) {
	var eval table.Samples
	in, err := encodeOther(c.Encoder, path, &eval, c.EvalLimit, bad)
	if err != nil {
		return nil, err
	}
	if eval.N == 0 {
		return nil, fmt.Errorf("table: %s: no rows to evaluate on", path)
	}
	set := encodedSet(c.Encoder, in)
	set.unseen(&eval)
	set.Eval = tableSource(c.Encoder, &eval)
	if len(bad.LeftOut()) == 0 {
		set.rows[1] = tableRows{in, func(int64) bool { return true }}
	}
	return set, nil
}

// encodedSet returns a table's set without samples.
func encodedSet(enc *table.Encoder, in table.Reader) *Dataset {
	set := &Dataset{Encoder: enc, Rows: enc.Rows(), Notes: enc.Notes(in)}
	if goal, _ := enc.Goal(); goal.Kind == table.Label {
		set.Classes, set.Words = len(goal.Words), goal.Words
	}
	return set
}

// unseen counts evaluation values of categories that training lacks, with a note per column.
func (s *Dataset) unseen(samples *table.Samples) {
	s.Unseen = samples.Unseen
	for _, c := range s.Encoder.Columns {
		n, also := samples.Unseen[c.Name], ""
		if n == 0 {
			continue
		}
		if c.MinCount > 1 {
			also = fmt.Sprintf(", or in fewer than %d rows", c.MinCount)
		}
		s.Notes = append(s.Notes, fmt.Sprintf("column %q: in %d of %d rows to evaluate a value that training has not seen%s, which is treated as a missing one", c.Name, n, samples.N, also))
	}
}

// newWords adds notes on training values of categories that the encoder of a resumed run lacks.
func (s *Dataset) newWords(samples *table.Samples) {
	for _, c := range s.Encoder.Columns {
		if n := samples.Unseen[c.Name]; n > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("column %q: in %d of %d rows to train on a value without weights, which is treated as a missing one; a run with --init-from learns new values", c.Name, n, samples.N))
		}
	}
}

// limited returns s, or nil once s has most rows.
func limited(s *table.Samples, most int) *table.Samples {
	if most > 0 && s.N >= most {
		return nil
	}
	return s
}

// encodeOther encodes the rows of another file.
func encodeOther(enc *table.Encoder, path string, to *table.Samples, most int, bad *datafile.Skips) (table.Reader, error) {
	in, err := OpenTable(path)
	if err != nil {
		return nil, err
	}
	return in, enc.Encode(in, true, maxTable, func(int64) *table.Samples { return limited(to, most) }, bad.Skip)
}

// tableSet returns the set of encoded rows train and eval; a note describes share, which divided
// them.
func tableSet(enc *table.Encoder, in table.Reader, train, eval *table.Samples, share holdout) (*Dataset, error) {
	set := encodedSet(enc, in)
	if train.N == 0 || eval.N == 0 {
		return nil, fmt.Errorf("table: %s: %s to train on and %d to evaluate on: %w", in.Name(), quantity.Count(train.N, "row"), eval.N,
			setting.Errorf("", "both are needed: another share with %v, a file with %v, or fewer %v", datafile.SplitPath, datafile.EvalFilePath, datafile.FoldsPath))
	}
	if share.hi > 0 {
		set.Notes = append(set.Notes, fmt.Sprintf("held out for evaluation: %d of %d rows (%v)", eval.N, train.N+eval.N, share))
	}
	set.unseen(eval)
	set.Train, set.Eval = tableSource(enc, train), tableSource(enc, eval)
	return set, nil
}

// tableSource returns the source of encoded rows.
func tableSource(enc *table.Encoder, s *table.Samples) Source {
	shape := Shape{IDs: enc.Categories()}
	if n := enc.Numbers(); n > 0 {
		shape.Values = []int{n}
	}
	switch goal, _ := enc.Goal(); goal.Kind {
	case table.Label:
		shape.Labels = 1
	case table.Target:
		shape.Targets = 1
	}
	return &memory{shape, Batch{N: s.N, Values: s.Values, IDs: s.IDs, Labels: s.Labels, Targets: s.Targets}}
}

// syntheticTable returns rows of eight numbers, with one of four classes by a hidden function.
func syntheticTable(c Config) *Dataset {
	source := func(part uint64, n int) Source {
		m := &memory{shape: Shape{Values: []int{8}, Labels: 1}}
		m.all.Resize(m.shape, n)
		for i := range n {
			r := prng.New(c.Seed, part, uint64(i))
			s := m.all.At(m.shape, i)
			for k := range s.Values {
				s.Values[k] = float32(math.Sqrt(3) * (2*r.Unit() - 1))
			}
			if s.Values[0]*s.Values[1]+s.Values[2] > 0 {
				s.Labels[0]++
			}
			if s.Values[3] > s.Values[4] {
				s.Labels[0] += 2
			}
		}
		return m
	}
	return &Dataset{Train: source(0, or(c.TrainLimit, 20_000)), Eval: source(1, or(c.EvalLimit, 2_000)), Classes: 4}
}
