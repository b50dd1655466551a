package train

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// table is that of a configuration.
func rowsOf(t *testing.T, c *Config) *setting.Table {
	t.Helper()
	out, err := setting.New(c.Settings()...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// assigned are values as somebody gives them.
func assigned(values setting.Values) (out []setting.Assignment) {
	for _, p := range slices.Sorted(maps.Keys(values)) {
		out = append(out, setting.Assignment{Path: p, Text: values[p], Origin: "test"})
	}
	return out
}

// other is a configuration of which no setting has its default.
func other() Config {
	c := Config{
		Data: "d", TrainFile: "t", EvalFile: "e", SkipBad: 1, TrainLimit: 2, EvalLimit: 3, TableRows: 4, Target: "y", Schema: table.Schema{"a": table.Ignore}, MinCount: 5, Split: 0.3, Layout: "avazu", Partition: PartitionFiles, ImageSize: 64, Stream: true, Window: 5,
		Best: Best{Metric: "loss", Patience: 3}, LogEvery: 2, Batch: 7, Average: 0.99, Epochs: 8, Optimizer: "adam", TableRules: "w*=ftrl:rate=50", LR: 0.3, Cosine: true, Floor: 1e-9,
		Warmup: schedule.Warmup{Epochs: 0.1}, Momentum: 0.5, Eps: 1e-7, WeightDecay: 2, Dropout: 0.25, ClassWeights: "a=2,b=0.5", LabelSmoothing: 0.1, Seed: 1 << 63, Threads: 9, Precision: bf16,
		Heter: Heter{Count: 2, Micros: 3, Values: "bf16"}, Servers: Servers{CacheBytes: 1 << 20, Staleness: 1, GeoSteps: 2, Threads: 3, Values: "bf16", Click: map[string]float64{"decay": 0.1, "rate": 3}},
		Exchange: distopt.Config{Strategy: "auto", Plan: "exact", BucketBytes: 10, ClipNorm: 11, Accumulation: 12, Partitions: 13, Spars: 0.1, Every: 14,
			Rule: compress.RulePaper, ClipValue: 15, Momentum: 0.9, LimitSum: true, LayerThresholds: true, NonFinite: "skip"},
		WarmupDensity: []float64{0.1, 1. / 3}, Checkpoint: Checkpoint{Dir: "c", Every: 16, Keep: 5, Resume: true}, Layers: true,
		Tuning: Tuning{Choices: tune.Choices{{Step: 3, Reselect: true}}},
		Start:  Init{From: "f", Except: []string{"head.*"}, Freeze: []string{"a", "b*"}, Rates: []Rate{{"c.?", 0.1}, {"d=e", 10}}},
	}
	return c
}

// A configuration is its values' texts: given to another one, they make the same. Every row is of another field.
func TestValuesAreTheConfiguration(t *testing.T) {
	for _, dropout := range []float64{0, 0.25, -1} {
		from, to := other(), Defaults(zoo("mlp"), data.Synthetic)
		from.Dropout = dropout
		values := rowsOf(t, &from).Values()
		if err := rowsOf(t, &to).Apply(assigned(values)...).Err(); err != nil {
			t.Fatal(err)
		}
		if from.Model, to.Model = (model.Spec{}), (model.Spec{}); !reflect.DeepEqual(from, to) {
			t.Errorf("%+v\nbecomes\n%+v", from, to)
		}
	}
	usual, unlike := Defaults(zoo("mlp"), data.Synthetic), other()
	same := rowsOf(t, &unlike).Values()
	maps.DeleteFunc(same, func(p setting.Path, text string) bool { d, _ := rowsOf(t, &usual).Get(p); return d != text })
	if len(same) > 0 {
		t.Errorf("the test has defaults of %v", same)
	}
}

// Every number, text and switch of Config has a row, but for what follows from others.
func TestEveryFieldHasARow(t *testing.T) {
	c := other()
	var lacking []string
	rows := rowsOf(t, &c)
	before := rows.Values()
	var walk func(v reflect.Value, name string)
	walk = func(v reflect.Value, name string) {
		for i := range v.NumField() {
			f, field := v.Field(i), v.Type().Field(i)
			at := strings.TrimPrefix(name+"."+field.Name, ".")
			switch {
			case !field.IsExported() || slices.Contains([]reflect.Kind{reflect.Func, reflect.Interface, reflect.Pointer}, f.Kind()) || field.Name == "Model":
			case f.Kind() == reflect.Struct && field.Type != reflect.TypeFor[schedule.Warmup]():
				walk(f, at)
			default:
				was := reflect.New(f.Type()).Elem()
				was.Set(f)
				f.SetZero()
				if maps.Equal(rows.Values(), before) {
					lacking = append(lacking, at)
				}
				f.Set(was)
			}
		}
	}
	walk(reflect.ValueOf(&c).Elem(), "")
	// The model, sync and the start are of the job; tuning has rows of its own there, a timeline is
	// drawn where one is wanted, and no user keeps or waits otherwise. ScaleLR is whether
	// training.lr was given, and Drops are read by training.lr-schedule. Programs alone set Interleave,
	// AUCWindow, SparseAlgorithm and Update. Worst, Importance and By are flags of `ringo eval`.
	want := []string{"Name", "Interleave", "ScaleLR", "Drops", "AUCWindow", "Servers.Consistency", "Servers.Start", "Servers.Begin", "Exchange.SparseAlgorithm", "Exchange.Update", "Traced", "Labelled", "Tuning.Measure", "Workers", "Checkpoint.DiskFullWait", "Checkpoint.Assignments", "Worst", "Importance", "By"}
	if !slices.Equal(lacking, want) {
		t.Errorf("no row has %q, want %q", lacking, want)
	}
}

// Texts that are no values are refused.
func TestTextsThatAreNoValues(t *testing.T) {
	for p, texts := range map[setting.Path][]string{
		"training.optimizer": {"", "adma"}, "training.lr-schedule": {"1", "2:1,1:1", "cosine:", "cosine:x", "cosine:nan"}, "training.warmup": {"x", "-1epochs"}, "training.class-weights": {"a", "=1", "a=0", "a=-1", "a=nan", "a=1e7", "a=1,a=2", "a=1,", "Balanced"}, "training.dropout": {"", "1", "-0.1", "nan", "none"},
		"training.monitor": {":patience=3", "loss:patience=", "loss:patience=x"}, "exchange.warmup-density": {"0.1,", "nan", "a"}, "ps.click": {"decay", "decay=1,decay=1", "speed=1", "decay=2", "=1"},
		"exchange.strategy": {"custom", "tpok"}, "exchange.plan": {"x"}, "exchange.dlgs-rule": {"x"}, "ps.wire-dtype": {"fp8"}, "training.freeze": {"a,,b"}, "training.lr-multipliers": {"a", "a=", "a=1,,b=2", "=x"},
	} {
		for _, text := range texts {
			c := Defaults(zoo("mlp"), data.Synthetic)
			if rowsOf(t, &c).Apply(setting.Assignment{Path: p, Text: text}) == nil {
				t.Errorf("%s takes %q", p, text)
			}
		}
	}
}

// What is read of these texts is written so that it is read alike.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{"0.25,0.0625", "0", "default", "0.1", "decay=0.5,rate=3", "rate=0x1p-2", "1e-320", "a.*=0.1,b=c=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range []setting.Path{"training.dropout", "exchange.warmup-density", "ps.click", "training.lr-multipliers"} {
			var a, b Config
			if rowsOf(t, &a).Apply(setting.Assignment{Path: p, Text: text}) != nil {
				continue
			}
			first, _ := rowsOf(t, &a).Get(p)
			if err := rowsOf(t, &b).Apply(setting.Assignment{Path: p, Text: first}).Err(); err != nil || !reflect.DeepEqual(a, b) {
				t.Fatalf("%s %q is %q, which is read otherwise: %v", p, text, first, err)
			}
		}
	})
}
