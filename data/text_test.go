package data

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/text"
)

func textSet(t *testing.T, name, train, eval string, cfg Config) (*Dataset, error) {
	t.Helper()
	cfg.Dir = t.TempDir()
	datatest.Write(t, cfg.Dir, map[string][]byte{"train.txt": []byte(train), "valid.txt.gz": datatest.Compress([]byte(eval))})
	return Open(name, cfg)
}

func TestText(t *testing.T) {
	const train = " the cat sat\n\non the  mat the cat\nate <unk> é\n"
	set, err := textSet(t, "text", train, "a cat\non the moon\n", Config{Steps: 3})
	if err != nil {
		t.Fatal(err)
	}
	// By frequency, then by first occurrence.
	want := []string{"<unk>", "<eos>", "the", "cat", "sat", "on", "mat", "ate", "é"}
	if !slices.Equal(set.Words, want) || set.Vocabulary != 9 || !set.Streams {
		t.Errorf("vocabulary %q", set.Words)
	}
	ids := []int32{2, 3, 4, 1, 1, 5, 2, 6, 2, 3, 1, 7, 0, 8, 1}
	got := all(t, set.Train)
	if set.Train.Len() != 4 || !slices.Equal(got.IDs, ids[:12]) || !slices.Equal(got.Labels, ids[1:13]) {
		t.Errorf("%d sequences: %v, labels %v", set.Train.Len(), got.IDs, got.Labels)
	}
	if got := all(t, set.Eval); !slices.Equal(got.IDs, []int32{0, 3, 1, 5, 2, 0}) || !slices.Equal(got.Labels, []int32{3, 1, 5, 2, 0, 1}) {
		t.Errorf("evaluation %v, labels %v", got.IDs, got.Labels)
	}
	checkReuse(t, set.Train, Draw{})
	small, err := textSet(t, "text", train, "the sat mat cat\n", Config{Steps: 2, Vocabulary: 5})
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, small.Eval); !slices.Equal(small.Words, want[:5]) || !slices.Equal(got.IDs, []int32{2, 4, 0, 3}) {
		t.Errorf("%q: %v", small.Words, got.IDs)
	}
}

func TestTextFaults(t *testing.T) {
	for _, c := range []struct{ train, eval, says string }{
		{"a b\nc \xff d\n", "a b c d e\n", "train.txt: byte 6: line 2: byte 0xff is not UTF-8"},
		{"a b c d e f g\n", "x\ny\n\x00", "valid.txt.gz: byte 4: line 3: byte 0x00"},
		{"a b c d e f g\n", "x\n", "valid.txt.gz: byte 0: 2 tokens are too few for one sequence of 3"},
		{"", "", "train.txt: byte 0: 0 tokens"},
	} {
		_, err := textSet(t, "text", c.train, c.eval, Config{Steps: 3})
		var fault *datafile.FormatError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v\nwant %s", err, c.says)
		}
	}
	set, err := textSet(t, "text", "a b\nc \xff d\na\n", "a b c d e\n", Config{Steps: 3, SkipBad: 1})
	if err != nil || set.skips.Count() != 1 || set.Vocabulary != 4 {
		t.Errorf("skipping: %v, %+v", err, set)
	}
	long := strings.Repeat("word ", 200_000) // more than a reader's buffer
	if set, err = textSet(t, "text", long+"\n"+long, "a b c d\n", Config{Steps: 3}); err != nil || len(set.Train.(*tokens).ids) != 400_002 {
		t.Errorf("long lines: %v", err)
	}
}

func TestChars(t *testing.T) {
	set, err := textSet(t, "chars", "ab\xff\x00 cd", "hello", Config{Steps: 2})
	if err != nil {
		t.Fatal(err)
	}
	got := all(t, set.Train)
	if set.Vocabulary != 256 || !slices.Equal(got.IDs, []int32{'a', 'b', 255, 0, ' ', 'c'}) || !slices.Equal(got.Labels, []int32{'b', 255, 0, ' ', 'c', 'd'}) {
		t.Errorf("%d: %v %v", set.Vocabulary, got.IDs, got.Labels)
	}
	if _, err := textSet(t, "chars", "ab", "hello", Config{Steps: 2}); err == nil || !strings.Contains(err.Error(), "2 tokens are too few") {
		t.Errorf("short: %v", err)
	}
}

// perplexities of the evaluation text under the training text's word and pair
// frequencies.
func perplexities(set *Dataset) (words, pairs float64) {
	train, eval := set.Train.(*tokens).ids, set.Eval.(*tokens).ids
	count, pair := map[int32]float64{}, map[[2]int32]float64{}
	for i, id := range train {
		count[id]++
		if i > 0 {
			pair[[2]int32{train[i-1], id}]++
		}
	}
	n, v := float64(len(train)), float64(set.Vocabulary)
	for i := 1; i < len(eval); i++ {
		p := (count[eval[i]] + 1) / (n + v)
		words -= math.Log(p)
		pairs -= math.Log(0.3*p + 0.7*pair[[2]int32{eval[i-1], eval[i]}]/(count[eval[i-1]]+1))
	}
	tokens := float64(len(eval) - 1)
	return math.Exp(words / tokens), math.Exp(pairs / tokens)
}

// There is something to learn in the synthetic texts: words are not equally
// frequent, and the one before says much about the next.
func TestSyntheticText(t *testing.T) {
	for _, c := range []struct {
		name        string
		words, next float64 // at most: of the vocabulary, of the words' perplexity
	}{{"text", 0.3, 0.5}, {"chars", 0.15, 0.6}} {
		set, err := Open(c.name, Config{Dir: Synthetic, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		words, pairs := perplexities(set)
		t.Logf("%s: %d sequences, perplexity %.0f by words alone, %.0f by pairs", c.name, set.Train.Len(), words, pairs)
		if words > c.words*float64(set.Vocabulary) || pairs > c.next*words {
			t.Errorf("%s: perplexity %.0f by words, %.0f by pairs", c.name, words, pairs)
		}
		if ids := set.Train.(*tokens).ids; slices.Min(ids) < 0 || int(slices.Max(ids)) >= set.Vocabulary {
			t.Errorf("%s: tokens from %d to %d", c.name, slices.Min(ids), slices.Max(ids))
		}
		small, err := Open(c.name, Config{Dir: Synthetic, Seed: 1, TrainLimit: 10, EvalLimit: 2})
		if err != nil || small.Train.Len() != 10 || small.Eval.Len() != 2 || !slices.Equal(all(t, small.Train).IDs, fill(t, set.Train, Draw{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9).IDs) {
			t.Errorf("%s: a smaller set is not a prefix (%v)", c.name, err)
		}
	}
}

func TestTextReal(t *testing.T) {
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		t.Skip("RINGO_DATA is not set: no WikiText-2 in its folder text to read")
	}
	dir := filepath.Join(root, "text")
	set, err := Open("text", Config{TrainFile: filepath.Join(dir, "wikitext2-valid.txt"), EvalFile: filepath.Join(dir, "wikitext2-test.txt"), Vocabulary: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// The published sizes: 217,646 and 245,569 tokens, <eos> included.
	if a, b := len(set.Train.(*tokens).ids), len(set.Eval.(*tokens).ids); a != 217646 || b != 245569 {
		t.Errorf("%d + %d tokens", a, b)
	}
	if !slices.Equal(set.Words[:4], []string{"<unk>", "<eos>", "the", ","}) {
		t.Errorf("%q", set.Words[:4])
	}
}

func BenchmarkWords(b *testing.B) {
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		b.Skip("RINGO_DATA is not set")
	}
	words, err := os.ReadFile(filepath.Join(root, "words", "wikitext2-test.txt"))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(words)))
	n := 0
	for b.Loop() {
		v := text.NewVocabulary()
		ids, err := text.ReadWords("f", bytes.NewReader(words), v, true, datafile.MaxElements, new(datafile.Skips))
		if err != nil {
			b.Fatal(err)
		}
		v.Keep(10_000, ids)
		n = len(ids)
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// Where a folder has several files to evaluate on, the set says which one is taken.
func TestTextTellsWhatItEvaluatesOn(t *testing.T) {
	text := []byte(strings.Repeat("a b c ", 30))
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"ptb.train", "ptb.test", "ptb.valid"}, "evaluating on DIR/ptb.test, not on ptb.valid (data.eval-file names another)"},
		{[]string{"ptb.train.txt", "ptb.valid.txt", "ptb.dev.txt", "ptb.test.txt.gz", "ptb.test.txt"}, "evaluating on DIR/ptb.test.txt, not on ptb.dev.txt or ptb.valid.txt (data.eval-file names another)"},
		{[]string{"train.txt", "valid.txt"}, ""},
	} {
		dir, files := t.TempDir(), map[string][]byte{}
		for _, name := range c.names {
			if files[name] = text; strings.HasSuffix(name, ".gz") {
				files[name] = datatest.Compress(text)
			}
		}
		datatest.Write(t, dir, files)
		set, err := Open("text", Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(strings.Join(set.Notes, "\n"), dir, "DIR"); got != c.want {
			t.Errorf("%v: %q, want %q", c.names, got, c.want)
		}
		named, err := Open("text", Config{Dir: dir, EvalFile: filepath.Join(dir, c.names[1])})
		if err != nil || named.Notes != nil {
			t.Errorf("%v: with a file named: %q, %v", c.names, named.Notes, err)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add([]byte(" a b\n\nc a\n"), 3)
	f.Add([]byte("x \xff\ny"), 5)
	f.Fuzz(func(t *testing.T, raw []byte, most int) {
		most = 3 + most&15
		v := text.NewVocabulary()
		ids, err := text.ReadWords("f", bytes.NewReader(raw), v, true, datafile.MaxElements, new(datafile.Skips))
		if err != nil {
			var fault *datafile.FormatError
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset >= int64(len(raw)) || utf8.Valid(raw) && raw[fault.Offset] != 0 {
				t.Fatalf("%v in %q", err, raw)
			}
			return
		}
		v.Keep(most, ids)
		if len(v.Words) > most {
			t.Fatalf("%d words", len(v.Words))
		}
		again, err := text.ReadWords("f", bytes.NewReader(raw), v, false, datafile.MaxElements, new(datafile.Skips))
		if err != nil || !slices.Equal(again, ids) {
			t.Fatalf("read again: %v, not %v (%v)", again, ids, err)
		}
		want := 0
		for line := range strings.Lines(string(raw)) {
			want += len(strings.Fields(line)) + 1
		}
		if len(ids) != want {
			t.Fatalf("%d tokens, want %d", len(ids), want)
		}
	})
}
