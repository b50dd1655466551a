package data

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// With Stream a set names its training files, and reads the other one alone.
func TestOpenClickStreamSet(t *testing.T) {
	text := datatest.ClickText(30)
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"Train_2.tsv": text, "train_10.tsv.gz": datatest.Compress(text), "train_2.tsv.zst": nil, "train.md": nil, "test.tsv": datatest.ClickText(20)})
	open := func(cfg Config) (*Dataset, error) { return Open("criteo", cfg) }
	set, err := open(Config{Dir: dir, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range set.Files {
		names = append(names, filepath.Base(f))
	}
	if want := []string{"Train_2.tsv", "train_2.tsv.zst", "train_10.tsv.gz"}; !slices.Equal(names, want) || set.Train != nil || set.Eval.Len() != 20 || set.Rows != clicks.TableRows {
		t.Errorf("%q, want %q; %+v", names, want, set)
	}
	before := set.Fingerprint()
	datatest.Write(t, dir, map[string][]byte{"train_10.tsv.gz": datatest.Compress(datatest.ClickText(31))})
	if again, err := open(Config{Dir: dir, Stream: true}); err != nil || again.Fingerprint() == before {
		t.Errorf("the fingerprint does not show that a file changed (%v)", err)
	}
	folder := datatest.WriteTree(t, map[string][]byte{"train/a": text, "train/b.csv": text, "valid.txt": text})
	if set, err := open(Config{Dir: folder, Stream: true}); err != nil || len(set.Files) != 2 || set.Eval.Len() != 30 {
		t.Errorf("a folder: %v", err)
	}
	set, err = open(Config{TrainFile: filepath.Join(folder, "train"), EvalFile: filepath.Join(folder, "valid.txt"), Stream: true})
	if err != nil || len(set.Files) != 2 {
		t.Errorf("a folder by name: %v", err)
	}
	for _, c := range []struct {
		set  string
		cfg  Config
		says string
	}{
		{"criteo", Config{Dir: Synthetic, Stream: true}, "has no files to read synthetic rows from"},
		{"criteo", Config{Dir: dir, Stream: true, TrainLimit: 5}, "data.train-limit 5"},
		{"text", Config{Dir: dir, Stream: true}, "only click data"},
		{"criteo", Config{Dir: t.TempDir(), Stream: true}, "no folder train"},
		{"criteo", Config{Dir: "/nowhere", Stream: true}, "/nowhere"},
		{"criteo", Config{Dir: filepath.Join(folder, "train"), TrainFile: folder + "/train", Stream: true}, "with test, dev, valid, eval in its name"},
	} {
		_, err := Open(c.set, c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.says)
		}
		if found := Find(c.set, c.cfg); c.cfg.Dir != Synthetic && found == nil {
			t.Errorf("%+v: found", c.cfg)
		}
	}
}

// The fingerprint is what it was before shapes had keys: checkpoints name it.
func TestFingerprintOfShape(t *testing.T) {
	set, err := Open("criteo", Config{Dir: Synthetic, Seed: 1, Rows: 100, TrainLimit: 5, EvalLimit: 3})
	if err != nil {
		t.Fatal(err)
	}
	type shape struct {
		Values      []int
		IDs, Labels int
	}
	h := sha256.New()
	fmt.Fprintf(h, "criteo 2 0 100 %q\n", []string(nil))
	for _, src := range []Source{set.Train, set.Eval} {
		fmt.Fprintf(h, "%d %v\n", src.Len(), shape{[]int{13}, 26, 1})
		if limited, ok := src.(head); ok {
			src = limited.Source
		}
		src.(*clickPages).evidence(h)
	}
	if set.Fingerprint() != [sha256.Size]byte(h.Sum(nil)) {
		t.Error("the fingerprint changed")
	}
}
