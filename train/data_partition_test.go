package train

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// Ranks that have the same set share it, and all make the steps of the smallest part.
func TestSharesOfSets(t *testing.T) {
	set := func(name byte, train, eval int64) dataSetInfo {
		h := dataSetInfo{Train: train, Eval: eval}
		h.Fingerprint[0] = name
		return h
	}
	other := set('b', 9, 9)
	other.Meaning[0] = 1
	for _, c := range []struct {
		all   []dataSetInfo
		ranks [][]int // of each
		train int
		eval  int
		steps int
		want  string // of the error, or a note
	}{
		{[]dataSetInfo{set('a', 40, 7), set('a', 40, 7)}, [][]int{{0, 1}, {0, 1}}, 40, 7, 5, ""},
		{[]dataSetInfo{set('a', 40, 7), set('b', 13, 2)}, [][]int{{0}, {1}}, 53, 9, 4, "2 sets of their own, with 13 to 40 samples for a rank; an epoch has as many batches as the smallest part, that of rank 1, has: 4"},
		{[]dataSetInfo{set('a', 40, 7), set('b', 40, 2), set('a', 40, 7)}, [][]int{{0, 2}, {1}, {0, 2}}, 80, 9, 5, "2 sets"},
		{[]dataSetInfo{set('a', 40, 7), set('b', 13, 2)}, [][]int{{0}, {1}}, 53, 9, 4, "rank 0 sees at most 16 of its 40 samples"},
		{[]dataSetInfo{set('a', 40, 7), set('b', 3, 2)}, nil, 0, 0, 0, "rank 1 has 3 training samples, less than a batch of 4"},
		{[]dataSetInfo{set('a', 40, 7), other}, nil, 0, 0, 0, "samples of rank 1 mean something else than those of rank 0"},
	} {
		for rank := range c.all {
			s, err := sharesOf(c.all, rank, 4)
			if c.ranks == nil {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%+v: %v", c, err)
				}
				continue
			}
			if err != nil || !slices.Equal(s.ranks, c.ranks[rank]) || s.train != c.train || s.eval != c.eval || s.steps != c.steps || (c.want == "") != (s.notes == nil) || !strings.Contains(strings.Join(s.notes, "; "), c.want) {
				t.Errorf("%+v: rank %d has %+v, %v", c, rank, s, err)
			}
		}
	}
}

// fixed runs a model of one's own on ranks with sets of their own.
func fixed(cfg Config, sets ...*data.Dataset) (Summary, Info, error) {
	var sum Summary
	rec := new(recorder)
	cfg.Partition = PartitionFixed
	err := ringo.Local(context.Background(), len(sets), ringo.Config{}, func(job *ringo.Job) error {
		own := cfg
		if job.Rank() == 0 {
			own.Observer = rec
		}
		s, err := Run(job.Context(), job, mine(), sets[job.Rank()], own)
		if job.Rank() == 0 {
			sum = s
		}
		return err
	})
	return sum, rec.info, err
}

// Ranks with files of their own train one model, on as many samples as all have, and evaluate all that any of them holds out.
func TestRanksWithTheirOwnSets(t *testing.T) {
	large, small := stripes(t, 400), stripes(t, 130)
	cfg := Config{LR: 0.5, Batch: 16, Epochs: 8}
	s, info, err := fixed(cfg, large, small)
	steps := (small.Train.Len() + 15) / 16
	if err != nil || s.Eval["accuracy"] < 0.8 || info.StepsPerEpoch != steps || info.TrainSamples != large.Train.Len()+small.Train.Len() ||
		info.EvalSamples != large.Eval.Len()+small.Eval.Len() || len(info.DataNotes) != 3 {
		t.Errorf("%+v, %+v, %v", s, info, err)
	}
	again, _, err := fixed(cfg, large, small)
	if err != nil || again.ParamsSHA256 != s.ParamsSHA256 {
		t.Errorf("again: %s, not %s: %v", again.ParamsSHA256, s.ParamsSHA256, err)
	}
	more := *small
	more.Classes = 3
	if _, _, err := fixed(cfg, large, &more); err == nil || !strings.Contains(err.Error(), "mean something else") {
		t.Errorf("other classes: %v", err)
	}
}

// A run on sets of the ranks' own goes on from its checkpoint, unless a rank has another set now.
func TestOwnSetsResume(t *testing.T) {
	a, b := stripes(t, 300), stripes(t, 200)
	cfg := Config{LR: 0.5, Batch: 16, Epochs: 4}
	whole, _, err := fixed(cfg, a, b)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Epochs, cfg.Checkpoint = 2, Checkpoint{Dir: t.TempDir(), Resume: true}
	if _, _, err = fixed(cfg, a, b); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 4
	if _, _, err = fixed(cfg, a, stripes(t, 201)); err == nil || !strings.Contains(fmt.Sprint(err), "the data differ") {
		t.Errorf("another set: %v", err)
	}
	if s, info, err := fixed(cfg, a, b); err != nil || s.ParamsSHA256 != whole.ParamsSHA256 || info.Resumed == "" {
		t.Errorf("%s, not %s: %v", s.ParamsSHA256, whole.ParamsSHA256, err)
	}
}

// A model that takes images of any size is built for those of its data; others refuse.
func TestImageSize(t *testing.T) {
	for model, want := range map[string]string{"cifar-resnet20": "", "cifar-vgg16": "data.image-size 48: model cifar-vgg16 takes images of [32 32 3] alone", "lstm": "data.image-size 48 has no effect on the data set"} {
		cfg := Defaults(zoo(model), data.Synthetic)
		if cfg.ImageSize = 48; want != "" {
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", model, err, want)
			}
			continue
		}
		cfg.TrainLimit, cfg.EvalLimit, cfg.Epochs, cfg.Batch = 4, 2, 1, 2
		if _, rec := onRanks(t, 2, cfg); rec.info.StepsPerEpoch != 1 {
			t.Errorf("%+v", rec.info)
		}
		if err := func() error { cfg.ImageSize = -1; return cfg.Validate() }(); err == nil {
			t.Error("-1 is accepted")
		}
	}
}

// Ranks with tables of their own encode them alike: numbers by the mean of all, and words and classes that one rank alone has are known to both.
func TestRanksWithTheirOwnTables(t *testing.T) {
	var paths []string
	for rank, towns := range [][]string{{"Bern", "Zug"}, {"Zug", "Chur"}} {
		text := "area,town,kind\n"
		for i := range 200 {
			text += fmt.Sprintf("%d,%s,%s\n", i%50+100*rank, towns[i%2], towns[i%2]+"er")
		}
		path := filepath.Join(t.TempDir(), "own.csv")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		cfg := Defaults(zoo("mlp"), paths[job.Rank()])
		cfg.Batch, cfg.Epochs, cfg.LR, cfg.Partition = 16, 6, 0.05, PartitionFixed
		s, err := Run(job.Context(), job, cfg.Model, nil, cfg)
		if err == nil && s.Eval["accuracy"] < 0.9 {
			t.Errorf("rank %d: %+v", job.Rank(), s.Eval)
		}
		if err != nil {
			return err
		}
		_, err = RunSeeds(job.Context(), job, cfg.Model, nil, cfg, 2, func(seed Summary) {
			if seed.Seed == s.Seed && seed.ParamsSHA256 != s.ParamsSHA256 {
				t.Errorf("rank %d: %s as one of several seeds, alone %s", job.Rank(), seed.ParamsSHA256, s.ParamsSHA256)
			}
		})
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
