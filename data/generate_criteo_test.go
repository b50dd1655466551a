package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

func generate(t testing.TB, m *clicks.CriteoModel, cfg clicks.GenerateConfig) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(t.Context(), &b, cfg); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// columnStatistics are of each column the share missing, of a count its
// quartiles, of a category the share of its most frequent value and of those
// that came once.
func columnStatistics(t *testing.T, text []byte) (shares [39][3]float64, quartiles [13][3]int64, rate float64) {
	t.Helper()
	m := &clicks.CriteoModel{Parser: clicks.NewCriteoParser(1000, false)}
	c, err := m.ReadSample("f", bytes.NewReader(text), math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	rows := float64(c.Rows)
	for i, values := range c.Numbers {
		slices.Sort(values)
		shares[i][0] = 1 - float64(len(values))/rows
		for q := range 3 {
			if len(values) > 0 {
				quartiles[i][q] = values[(q+1)*len(values)/4]
			}
		}
	}
	for i, count := range c.Categories {
		present, single, top := 0, 0, 0
		for _, n := range count {
			present += n
			top = max(top, n)
			if n == 1 {
				single++
			}
		}
		shares[13+i] = [3]float64{1 - float64(present)/rows, float64(top) / rows, float64(single) / rows}
	}
	return shares, quartiles, float64(c.Clicks) / rows
}

// sample is the real rows where they are, or made-up ones.
func sample(t testing.TB) []byte {
	if root := os.Getenv("RINGO_DATA"); root != "" {
		text, err := os.ReadFile(filepath.Join(root, "criteo", "criteo_8000_train.tsv"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	t.Log("RINGO_DATA is not set: made-up rows in the place of those in its folder criteo")
	var b bytes.Buffer
	for i := range 5000 {
		r := prng.New(1, 1, uint64(i))
		row := fmt.Sprint(r.Below(4) / 3)
		for c := range clicks.CriteoNumbers {
			if row += "\t"; r.Below(c+2) > 0 {
				row += fmt.Sprint(int64(math.Exp(r.Unit()*float64(1+c))) - 2)
			}
		}
		for c := range clicks.CriteoSlots {
			if row += "\t"; r.Below(c+3) > 0 {
				row += fmt.Sprintf("%08x", int64(math.Pow(float64(4+c*c*c), r.Unit())))
			}
		}
		b.WriteString(row + "\n")
	}
	return b.Bytes()
}

// Generated rows have the statistics of the sample's columns.
func TestGenerateCriteo(t *testing.T) {
	text := sample(t)
	m, err := clicks.LearnCriteoRows("f", bytes.NewReader(text), clicks.SampleRows)
	if err != nil {
		t.Fatal(err)
	}
	made := generate(t, m, clicks.GenerateConfig{Rows: 7200, Seed: 1, Threads: 2})
	want, wantQ, wantRate := columnStatistics(t, text)
	got, gotQ, rate := columnStatistics(t, made)
	if math.Abs(rate-wantRate) > 0.025 {
		t.Errorf("%.3f of the rows are clicks, %.3f of the sample's", rate, wantRate)
	}
	for i := range want {
		// A value that is rare in the sample can come once in the rows made of
		// it: the share of single values is a little larger.
		for k, most := range [3]float64{0.025, 0.025, 0.13} {
			if d := got[i][k] - want[i][k]; math.Abs(d) > most || k == 2 && d < -0.03 {
				t.Errorf("column %d, statistic %d: %.3f, of the sample %.3f", i, k, got[i][k], want[i][k])
			}
		}
	}
	for i := range wantQ {
		for q := range 3 {
			if a, b := math.Log1p(math.Abs(float64(gotQ[i][q]))), math.Log1p(math.Abs(float64(wantQ[i][q]))); math.Abs(a-b) > 0.4 {
				t.Errorf("column %d: quartile %d is %d, of the sample %d", i, q+1, gotQ[i][q], wantQ[i][q])
			}
		}
	}
}

// There is something to learn, and it is the same in both parts.
func TestGeneratedCriteoIsLearnable(t *testing.T) {
	m, err := clicks.LearnCriteoRows("f", bytes.NewReader(sample(t)), clicks.SampleRows)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{
		"train.tsv": generate(t, m, clicks.GenerateConfig{Rows: 20_000, Seed: 1, Threads: 2}),
		"test.tsv":  generate(t, m, clicks.GenerateConfig{Rows: 5_000, Seed: 1, Part: 1, Threads: 2}),
	})
	set, err := Open("criteo", Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	got := logisticAUC(t, set)
	t.Logf("AUC of a logistic regression %.3f", got)
	if got < 0.62 {
		t.Errorf("AUC %.3f", got)
	}
}

func TestGenerateIsDeterministic(t *testing.T) {
	leakcheck.Check(t)
	m, err := clicks.LearnCriteoRows("f", bytes.NewReader(sample(t)), 500)
	if err != nil {
		t.Fatal(err)
	}
	cfg := clicks.GenerateConfig{Rows: 3*clicks.GenerateRows + 17, Seed: 3, Threads: 1}
	var told []int64
	cfg.Progress = func(rows int64) { told = append(told, rows) }
	want := generate(t, m, cfg)
	if n := bytes.Count(want, []byte("\n")); n != int(cfg.Rows) || !slices.Equal(told, []int64{2048, 4096, 6144, 6161}) {
		t.Errorf("%d rows, progress %v", n, told)
	}
	cfg.Threads = 5
	if !bytes.Equal(generate(t, m, cfg), want) {
		t.Error("the bytes depend on the number of threads")
	}
	short := cfg
	short.Rows = clicks.GenerateRows
	if !bytes.HasPrefix(want, generate(t, m, short)) {
		t.Error("fewer rows are not the beginning of more")
	}
	for _, other := range []clicks.GenerateConfig{{Rows: 10, Seed: 4, Threads: 1}, {Rows: 10, Seed: 3, Part: 1, Threads: 1}} {
		if bytes.HasPrefix(want, generate(t, m, other)) {
			t.Errorf("%+v: the same rows", other)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress = func(int64) { cancel() }
	var b bytes.Buffer
	if err := m.Write(ctx, &b, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := m.Write(t.Context(), failing{}, cfg); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a full disk: %v", err)
	}
	err = m.Write(t.Context(), &b, clicks.GenerateConfig{})
	if err == nil || !strings.Contains(err.Error(), "0 rows") || !strings.Contains(err.Error(), "0 threads") {
		t.Errorf("%v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestLearnCriteoFaults(t *testing.T) {
	good := string(datatest.ClickText(30))
	for _, c := range []struct{ text, says string }{
		{good + "1\t2\n", "line 31"},
		{"", "0 clicks in 0 rows"},
		{strings.Repeat("0"+strings.Repeat("\t", 39)+"\n", 5), "0 clicks in 5 rows"},
		{strings.Repeat("x", clicks.ChunkBytes+1), "longer than any row"},
	} {
		_, err := clicks.LearnCriteoRows("f", strings.NewReader(c.text), clicks.SampleRows)
		var fault *datafile.FormatError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v\nwant %q", err, c.says)
		}
	}
	empty := strings.Repeat("0"+strings.Repeat("\t", 39)+"\n1"+strings.Repeat("\t", 39)+"\n", 5)
	m, err := clicks.LearnCriteoRows("f", strings.NewReader(empty), clicks.SampleRows)
	if err != nil {
		t.Fatal(err)
	}
	if made := generate(t, m, clicks.GenerateConfig{Rows: 3, Threads: 1}); len(made) != 3*41 {
		t.Errorf("of nothing: %q", made)
	}
	if _, err := clicks.LearnCriteo("/nowhere"); err == nil {
		t.Error("no file, no error")
	}
}

func BenchmarkGenerateCriteo(b *testing.B) { // 20,000 rows
	m, err := clicks.LearnCriteoRows("f", bytes.NewReader(sample(b)), clicks.SampleRows)
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		if err := m.Write(b.Context(), &out, clicks.GenerateConfig{Rows: 20_000, Threads: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(out.Len()))
	b.ReportMetric(20_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkCriteoLike(b *testing.B) { // parses 20,000 rows like the sample's
	m, err := clicks.LearnCriteoRows("f", bytes.NewReader(sample(b)), clicks.SampleRows)
	if err != nil {
		b.Fatal(err)
	}
	text := generate(b, m, clicks.GenerateConfig{Rows: 20_000, Threads: 1})
	p := clicks.NewCriteoParser(clicks.TableRows, false)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := readClicks("f", bytes.NewReader(text), &clicks.Format{Default: p}, 1, 0, new(datafile.Skips)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(20_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
