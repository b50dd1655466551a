package train

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/model"
)

const shopLayout = `
separator: comma
header: true
columns:
  - {name: bought, kind: label}
  - {name: user, kind: category}
  - {name: price, kind: number, transform: log}
  - {name: item, kind: category, values: key, table: items}
  - {name: seen, kind: sequence, values: key, table: items}
`

// shopFiles makes a folder of a layout's files: two to train on and one to evaluate on, with their columns in different orders.
func shopFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files := map[string]string{"shop.yaml": shopLayout}
	for f, name := range []string{"train_1.csv", "train_2.csv", "test.csv"} {
		text := []string{"user,item,seen,price,bought\n", "bought,price,seen,item,user\n"}[f%2]
		for i := range 150 {
			var seen []string
			for k := range i % 4 {
				seen = append(seen, fmt.Sprint((i+k)%9))
			}
			text += fmt.Sprintf([]string{"%s,%d,%s,%d,%d\n", "%[5]d,%[4]d,%[3]s,%[2]d,%[1]s\n"}[f%2], fmt.Sprint("u", i%13), i%9, strings.Join(seen, "|"), i*f, i%3/2)
		}
		files[name] = text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func shopping(t *testing.T, dir string) Config {
	cfg := custom(zoo("din"))
	cfg.Data, cfg.Layout, cfg.Stream, cfg.TableRows = dir, filepath.Join(dir, "shop.yaml"), true, 100
	cfg.TrainLimit, cfg.EvalLimit, cfg.Batch, cfg.Epochs, cfg.Window = 0, 0, 8, 2, 40
	return cfg
}

// A model with a sequence learns from a layout's files, streamed, and goes on from the middle of an epoch with the same bits.
func TestLayoutIsLearnt(t *testing.T) {
	dir := shopFiles(t)
	cfg := shopping(t, dir)
	saving := cfg
	saving.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 7, Keep: 1000}
	want, whole := onRanks(t, 2, saving)
	if whole.info.TrainSamples != 300 || !(whole.epochs[1].TrainLoss < whole.epochs[0].TrainLoss) {
		t.Errorf("%+v", whole.epochs)
	}
	saving.Checkpoint.Dir, saving.Checkpoint.Resume = onlyFile(t, filepath.Join(saving.Checkpoint.Dir, "step-000000014.ringo")), true
	if got, rec := onRanks(t, 2, saving); got.ParamsSHA256 != want.ParamsSHA256 || rec.epochs[1].EvalLoss != whole.epochs[1].EvalLoss {
		t.Errorf("%+v, want %+v", got, want)
	}

	held := cfg
	held.Stream, held.Window, held.TrainFile = false, 0, filepath.Join(dir, "train_1.csv")
	if _, rec := onRanks(t, 1, held); rec.info.TrainSamples != 150 {
		t.Errorf("%d samples in memory", rec.info.TrainSamples)
	}
}

// Samples of another meaning are no samples of the model.
func TestLayoutOfAnotherMeaning(t *testing.T) {
	dir := shopFiles(t)
	cfg := shopping(t, dir)
	cfg.Checkpoint, cfg.Epochs = Checkpoint{Dir: t.TempDir()}, 1
	onRanks(t, 1, cfg)
	evaluated := func(layout string) error {
		if err := os.WriteFile(cfg.Layout, []byte(layout), 0o666); err != nil {
			t.Fatal(err)
		}
		return ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
			_, err := Evaluate(t.Context(), job, zoo("din"), nil, cfg)
			return err
		})
	}
	if err := evaluated(shopLayout); err != nil {
		t.Error(err)
	}
	if err := evaluated(strings.Replace(shopLayout, "transform: log", "", 1)); err == nil || !strings.Contains(err.Error(), "by layout shop.yaml, but these are by layout") {
		t.Errorf("%v", err)
	}
}

// A layout is refused where it has no effect.
func TestLayoutRefused(t *testing.T) {
	cfg := shopping(t, shopFiles(t))
	for says, m := range map[string]model.Spec{"data.layout " + cfg.Layout + " has no effect on model mlp": zoo("mlp"), "has no effect on model lstm": zoo("lstm")} {
		cfg.Model = m
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
