package train

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// A set with a name that JSON would change is refused before the first step, if the run saves
// checkpoints.
func TestCheckpointsRefuseNamesThatTheyCannotRestore(t *testing.T) {
	set := func(words ...string) *data.Dataset {
		shape := data.Shape{Values: []int{2}, Labels: 1}
		source, err := data.FromBatch(shape, data.Batch{N: 4, Values: make([]float32, 8), Labels: []int32{0, 1, 0, 1}})
		if err != nil {
			t.Fatal(err)
		}
		return &data.Dataset{Train: source, Eval: source, Classes: 2, Words: words}
	}
	for _, c := range []struct {
		words []string
		dir   string
		fails bool
	}{{[]string{"K\xf6ln", "Ulm"}, t.TempDir(), true}, {[]string{"Köln", "Ulm"}, t.TempDir(), false}, {[]string{"K\xf6ln", "Ulm"}, "", false}} {
		cfg := Defaults(zoo("mlp"), "")
		cfg.Batch, cfg.Epochs, cfg.Threads, cfg.Checkpoint.Dir = 2, 1, 1, c.dir
		err := ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
			_, err := Run(job.Context(), job, cfg.Model, set(c.words...), cfg)
			return err
		})
		if c.fails != (err != nil && strings.Contains(err.Error(), `the name "K\xf6ln" is not UTF-8, and a checkpoint could not restore it`)) {
			t.Errorf("%q, saved to %q: %v", c.words, c.dir, err)
		}
		if files, _ := filepath.Glob(filepath.Join(c.dir, "*.ringo")); c.fails && len(files) > 0 {
			t.Errorf("saved %q", files)
		}
	}
}
