package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/weights"
)

// tall is a model of one's own of three layers with a normalisation, of so many classes.
func tall(classes int) model.Spec {
	return model.Spec{Name: "tall", Build: func(ps *nn.Params, o model.Options) model.Model {
		one, norm, two, head := ps.Dense("one", o.Input[0], 24), ps.BatchNorm("norm", 24), ps.Dense("two", 24, 24), ps.Dense("head", 24, classes)
		return model.Model{
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				x := t.BatchNorm(t.Reshape(t.Dense(b.Values, one, nn.Identity), b.N, 1, 1, 24), norm, nil, nn.ReLU)
				return model.Outputs{t.Dense(t.Dense(t.Reshape(x, b.N, 24), two, nn.ReLU), head, nn.Identity)}
			},
			Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()},
		}
	}}
}

// runTall trains it on n ranks, of which rank 0 is observed.
func runTall(t *testing.T, n int, spec model.Spec, cfg Config, each func(rank int, cfg *Config)) (sum Summary, rec *recorder, err error) {
	t.Helper()
	set, rec := stripes(t, 400), new(recorder)
	cfg.Model = spec
	err = ringo.Local(context.Background(), n, ringo.Config{}, func(job *ringo.Job) error {
		cfg := cfg
		if job.Rank() == 0 {
			cfg.Observer = rec
		}
		if each != nil {
			each(job.Rank(), &cfg)
		}
		s, err := Run(job.Context(), job, spec, set, cfg)
		if job.Rank() == 0 {
			sum = s
		}
		return err
	})
	return sum, rec, err
}

// still is a run that moves nothing, so that what it ends with is what it began with; running statistics do move.
func still(from Init) Config {
	return Config{LR: 1e-38, Batch: 30, Epochs: 1, Start: from}
}

// pretrained is a folder with a checkpoint of tall, and the same weights as safetensors.
func pretrained(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	if _, _, err := runTall(t, 2, tall(2), Config{LR: 0.5, Batch: 30, Epochs: 2, Checkpoint: Checkpoint{Dir: dir}}, nil); err != nil {
		t.Fatal(err)
	}
	src, err := weights.OpenSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var tensors []weights.Tensor
	for _, i := range src.Tensors {
		data, err := src.Read(i.Name)
		if err != nil {
			t.Fatal(err)
		}
		shape := i.Shape
		if shape == nil {
			shape = []int{len(data)}
		}
		tensors = append(tensors, weights.Tensor{Name: i.Name, Shape: shape, Data: data})
	}
	file = filepath.Join(dir, "w.safetensors")
	f, err := os.Create(file)
	if err == nil {
		err = weights.Write(f, tensors, nil)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, file
}

// learntOf are the parameters and running statistics in a folder's last checkpoint.
func learntOf(t *testing.T, dir string) map[string][]float32 {
	t.Helper()
	src, err := weights.OpenSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	out := map[string][]float32{}
	for _, i := range src.Tensors {
		if out[i.Name], err = src.Read(i.Name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// asArrays writes the tensors of a safetensors file as a .npz.
func asArrays(file, to string) error {
	src, err := weights.OpenSource(file)
	if err != nil {
		return err
	}
	defer src.Close()
	var tensors []weights.Tensor
	for _, i := range src.Tensors {
		data, err := src.Read(i.Name)
		if err != nil {
			return err
		}
		tensors = append(tensors, weights.Tensor{Name: i.Name, Shape: i.Shape, Data: data})
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(weights.WriteNPZ(f, tensors), f.Close())
}

// A checkpoint, a run's folder, a safetensors file and a .npz give all ranks the same beginning, of which rank 0 alone has the file.
func TestInitFrom(t *testing.T) {
	dir, file := pretrained(t)
	want := learntOf(t, dir)
	last, err := checkpoint.Locate(dir)
	if err != nil {
		t.Fatal(err)
	}
	arrays := filepath.Join(dir, "w.npz")
	if err := asArrays(file, arrays); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{dir, last, file, arrays} {
		to := t.TempDir()
		cfg := still(Init{From: from})
		cfg.Checkpoint.Dir = to
		_, rec, err := runTall(t, 2, tall(2), cfg, func(rank int, c *Config) {
			if rank != 0 {
				c.Start.From = "nowhere"
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range learntOf(t, to) {
			if !slices.Equal(values, want[name]) != strings.Contains(name, "running") { // these have moved
				t.Errorf("%s: %s is %v, want %v", from, name, values[:2], want[name][:2])
			}
		}
		if len(rec.info.Parameters) != 1 || !strings.HasSuffix(rec.info.Parameters[0], ": 10 tensors taken") {
			t.Errorf("%s: told %q", from, rec.info.Parameters)
		}
	}
}

// What does not fit is an error with both shapes, unless it is left at its own values; what was left and not used is told.
func TestInitFromAnotherHead(t *testing.T) {
	dir, file := pretrained(t)
	for from, want := range map[string]string{dir: "head.weight: the file has [2 24], the model has [3 24]", file: "head.bias: the file has [2], the model has [3]"} {
		_, _, err := runTall(t, 2, tall(3), still(Init{From: from}), nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "training.init-except") {
			t.Errorf("%v, want it to hold %q", err, want)
		}
		_, rec, err := runTall(t, 2, tall(3), still(Init{From: from, Except: []string{"head.*"}, Freeze: []string{"[on]*"}, Rates: []Rate{{"head.*", 10}}}), nil)
		if err != nil {
			t.Fatal(err)
		}
		told := strings.Join(rec.info.Parameters, "\n")
		for _, want := range []string{"8 tensors taken\n", "left at random first values: head.bias, head.weight\n", "not used of the file: head.bias, head.weight\n",
			"frozen: 4 tensors of 120 values\ntrained: 4 tensors of 675 values\n", "10 times the learning rate: 2 tensors"} {
			if !strings.Contains(told, want) {
				t.Errorf("told %q, want %q among it", told, want)
			}
		}
	}
}

// Each fault is told by what was set, with names that are near.
func TestStartFaults(t *testing.T) {
	_, file := pretrained(t)
	other := filepath.Join(t.TempDir(), "other.zip")
	if err := os.WriteFile(other, []byte("PK\x03\x04 and so on"), 0o666); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Init{
		`training.freeze pattern "heads.*": no parameter has such a name (did you mean`:               {Freeze: []string{"heads.*"}},
		`training.lr-multipliers pattern "q": no parameter has such a name: names begin with one, no`: {Rates: []Rate{{"q", 2}}},
		`training.lr-multipliers head.*=0: want a positive number`:                                    {Rates: []Rate{{"head.*", 0}}},
		`training.init-except hed.weight: the model has no such tensor (did you mean "head.weight"?)`: {From: file, Except: []string{"hed.weight"}},
		`training.init-except head.* has no effect without training.init-from`:                        {Except: []string{"head.*"}},
		`no .npz archive`: {From: other},
		`no such file`:    {From: "nowhere"},
	} {
		if _, _, err := runTall(t, 1, tall(2), still(s), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to hold %q", err, want)
		}
	}
	if _, _, err := runTall(t, 2, tall(2), still(Init{From: file}), func(rank int, c *Config) {
		if rank == 1 {
			c.Start.From = ""
		}
	}); err == nil || !strings.Contains(err.Error(), "training.init-from") {
		t.Errorf("one rank alone: %v", err)
	}
	if _, _, err := runTall(t, 1, mine(), still(Init{From: file}), nil); err == nil || !strings.Contains(err.Error(), "it has no tensor of the model: that has hidden.bias") {
		t.Errorf("a file of another model: %v", err)
	}
}

// Under every strategy a fine-tuning sends gradients of what it trains alone, keeps what is frozen, and goes on after it was
// saved with the same bits; the file that it began with is not needed then.
func TestFrozenUnderEveryStrategy(t *testing.T) {
	dir, file := pretrained(t)
	began := learntOf(t, dir)
	frozen := []string{"one.*", "norm.*", "two.*"}
	for _, strategy := range distopt.Strategies() {
		t.Run(string(strategy), func(t *testing.T) {
			dir := t.TempDir()
			cfg := Config{LR: 0.25, Momentum: 0.5, Batch: 30, Epochs: 2, Start: Init{From: file, Freeze: frozen, Rates: []Rate{{"head.bias", 2}}}}
			if cfg.Exchange.Strategy = strategy; strategy == distopt.DGC {
				cfg.Momentum, cfg.Exchange.Momentum = 0, 0.5
			}
			all := cfg
			all.Start = Init{}
			_, more, err := runTall(t, 2, tall(2), all, nil)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Checkpoint = Checkpoint{Dir: dir, Every: 7, Keep: 100}
			sum, less, err := runTall(t, 2, tall(2), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := less.epochs[1].StepBytesSent, more.epochs[1].StepBytesSent; !(a < b/2) {
				t.Errorf("a step sends %v bytes with frozen layers and %v without", a, b)
			}
			for name, v := range learntOf(t, dir) {
				if same := slices.Equal(v, began[name]); same != (!strings.HasPrefix(name, "head.") && !strings.Contains(name, "running")) {
					t.Errorf("%s is unchanged: %v", name, same)
				}
			}
			cfg.Checkpoint = Checkpoint{Dir: onlyFile(t, checkpoint.PathOf(dir, 7)), Keep: 100, Every: 7, Resume: true}
			cfg.Start.From = "gone"
			if again, _, err := runTall(t, 2, tall(2), cfg, nil); err != nil || again.ParamsSHA256 != sum.ParamsSHA256 {
				t.Errorf("resumed: %s, %v, want %s", again.ParamsSHA256, err, sum.ParamsSHA256)
			}
		})
	}
}

// A resumed run cannot freeze otherwise, and may have other rates.
func TestResumeFrozenOtherwise(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{LR: 0.25, Batch: 30, Epochs: 1, Start: Init{Freeze: []string{"one.*"}}, Checkpoint: Checkpoint{Dir: dir}}
	if _, _, err := runTall(t, 1, tall(2), cfg, nil); err != nil {
		t.Fatal(err)
	}
	cfg.Checkpoint.Resume, cfg.Epochs = true, 2
	other := cfg
	other.Start.Freeze = nil
	if _, _, err := runTall(t, 1, tall(2), other, nil); err == nil || !strings.Contains(err.Error(), "training.freeze") {
		t.Errorf("other layers frozen: %v", err)
	}
	cfg.Start.Rates = []Rate{{"head.*", 0.5}}
	if _, rec, err := runTall(t, 1, tall(2), cfg, nil); err != nil || !strings.Contains(fmt.Sprint(rec.info.Changed), "training.lr-multipliers head.*=0.5 instead of") {
		t.Errorf("another rate: %v, %v", err, rec.info.Changed)
	}
}
