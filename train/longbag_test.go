package train

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
)

// longBags makes a folder of a layout's files, whose third sample to train on has a bag of so many keys, from 0 on and at last the largest
// there is; of the others each second one has an empty bag.
func longBags(t *testing.T, keys int) (cfg Config) {
	t.Helper()
	dir := t.TempDir()
	long := make([]byte, 0, 8*keys)
	for key := range keys - 1 {
		long = append(strconv.AppendInt(long, int64(key), 10), '|')
	}
	text := strings.Builder{}
	for i := range 32 {
		bag := []string{"", "0|18446744073709551615"}[i%2]
		if i == 2 {
			bag = string(long) + "18446744073709551615"
		}
		fmt.Fprintf(&text, "%d\t%s%s\n", i%2, strings.Repeat("1\t", 13), bag)
	}
	layout := "columns:\n  - {name: y, kind: label}\n  - {name: n, times: 13, kind: number}\n  - {name: b, kind: bag, values: key}\n"
	for name, text := range map[string]string{"long.yaml": layout, "train.tsv": text.String(), "test.tsv": text.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cfg = custom(tinyBags())
	cfg.Data, cfg.Layout, cfg.TrainLimit, cfg.EvalLimit, cfg.Batch, cfg.Epochs, cfg.Threads = dir, filepath.Join(dir, "long.yaml"), 0, 0, 4, 2, 1
	return cfg
}

// A bag of 200,000 keys, keys 0 and 2^64-1, and empty bags are learnt from, held in memory and
// streamed, by a table of fewer rows and by servers, which have a row for each.
func TestLongBagIsLearnt(t *testing.T) {
	cfg := longBags(t, 200_000)
	cfg.TableRows = 1000
	for _, stream := range []bool{false, true} {
		c, ranks := cfg, 2
		if c.Stream = stream; stream {
			c.Window, ranks = 8, 1 // ranks share blocks, of which the long line fills nearly all
		}
		_, rec := onRanks(t, ranks, c)
		if a, b := rec.epochs[0], rec.epochs[1]; !(b.TrainLoss < a.TrainLoss) || !(b.EvalLoss < a.EvalLoss) {
			t.Errorf("stream %v: the loss went from %v to %v, evaluated from %v to %v", stream, a.TrainLoss, b.TrainLoss, a.EvalLoss, b.EvalLoss)
		}
	}
	set, err := data.Open("clicks", data.Config{Dir: cfg.Data, Layout: cfg.Layout, TrainFile: filepath.Join(cfg.Data, "train.tsv"), EvalFile: filepath.Join(cfg.Data, "test.tsv")})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Servers.Consistency, cfg.TableRows = "bsp", 0
	_, rec, stats := onServers(t, 1, 2, cfg, set, nil)
	rows := int64(0)
	for _, s := range stats {
		for _, table := range s.Tables.Tables {
			rows += table.Rows
		}
	}
	if rows != 2*200_000 || !(rec.epochs[1].TrainLoss < rec.epochs[0].TrainLoss) {
		t.Errorf("%d rows of two tables; %+v", rows, rec.epochs)
	}
}
