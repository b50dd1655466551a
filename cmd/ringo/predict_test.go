package main

import (
	"archive/zip"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/weights"
)

// predictable trains on a small table and says where it and the checkpoint are.
func predictable(t *testing.T) (table, saved string) {
	t.Helper()
	dir := t.TempDir()
	table, saved = filepath.Join(dir, "table.csv"), filepath.Join(dir, "saved")
	rows := "x,word,y\n"
	for i := range 400 {
		rows += fmt.Sprintf("%d,%s,%s\n", i*i%97, []string{"a", "b", "c"}[i%3], []string{"low", "high"}[i*i%97/50])
	}
	if err := os.WriteFile(table, []byte(rows), 0o666); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := command(t, "train mlp --data "+table+" --np 2 --batch 32 --epochs 4 --progress none --checkpoint "+saved); status != 0 {
		t.Fatal(errs)
	}
	return table, saved
}

// One process and two ranks write the same bytes, to stdout and to a file, which takes the place of another.
func TestPredict(t *testing.T) {
	t.Parallel()
	table, saved := predictable(t)
	status, first, errs := command(t, "predict "+saved+" --data "+table+" --columns y --progress plain")
	if status != 0 || strings.Count(first, "\n") != 400 || !strings.HasPrefix(first, `{"row":0,"columns":{"y":"low"},"prediction":"`) || !strings.Contains(errs, "400 rows") {
		t.Fatalf("status %d, %.300q, %s", status, first, errs)
	}
	out := filepath.Join(t.TempDir(), "out.jsonl")
	if err := os.WriteFile(out, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, np := range []string{"--np 2", "--np 2 --transport mem", "--np 1"} {
		status, text, errs := command(t, "predict "+saved+" --data "+table+" --columns y --progress none --out "+out+" "+np)
		if got, err := os.ReadFile(out); status != 0 || err != nil || string(got) != first || text+withoutChoice(errs) != "" {
			t.Errorf("%s: status %d, %q, %q, %v, the same: %v", np, status, text, errs, err, string(got) == first)
		}
	}
	if status, text, errs := command(t, "predict "+saved+" --data "+table+" --columns y --progress none --np 2"); status != 0 || text != first {
		t.Errorf("to stdout: status %d, %s, %.200q", status, errs, text)
	}
	checkPredictRefuses(t, table, saved, out)
}

// checkPredictRefuses tries what cannot be predicted: a file that was there stays as it was.
func checkPredictRefuses(t *testing.T, table, saved, out string) {
	t.Helper()
	dir := filepath.Dir(out)
	other := filepath.Join(dir, "other.csv")
	if err := os.WriteFile(other, []byte("x,z\n1,2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"predict":                             "needs one checkpoint",
		"predict " + dir + " --data " + table: "no checkpoint is there",
		"predict " + filepath.Join(dir, "nowhere") + " --data " + table: "no such file",
		"predict " + saved:                                                                  "no input: give --data FILE",
		"predict " + saved + " --prompt x":                                                  "no language model",
		"predict " + saved + " --data " + table + " --seed 4":                               "--seed has no effect without --prompt",
		"predict " + saved + " --data - --np 2":                                             "remove --np",
		"predict " + saved + " --data " + table + " --format xml":                           "xml",
		"predict " + saved + " --data " + table + " --format parquet --out " + out:          "this binary writes no Parquet; in ringo's repository, build one",
		"predict " + saved + " --data " + table + " --top 3":                                "there are 2",
		"predict " + saved + " --data " + other + " --out " + out:                           `column "word": no such column`,
		"predict " + saved + " --data " + other + " --np 2 --out " + out:                    `column "word": no such column`,
		"predict " + saved + " --data " + filepath.Join(dir, "no.csv"):                      "no.csv",
		"predict " + saved + " --data " + table + " --columns nix --out " + out:             `column "nix"`,
		"predict " + saved + " --data " + table + " --out " + filepath.Join(dir, "no", "x"): "--out",
		"predict " + saved + " --data " + table + " --out " + dir:                           "is a folder",
		"predict " + saved + " --data " + table + " --epochs 3":                             "--epochs",
	} {
		if status, text, errs := command(t, line); status == 0 || text != "" || !strings.Contains(errs, want) {
			t.Errorf("ringo %s: status %d, stdout %q, stderr %q, want %q", line, status, text, errs, want)
		}
	}
	if after, err := os.ReadFile(out); err != nil || string(after) != string(before) {
		t.Errorf("a file was changed by what failed: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// What a run with heter-trainers has saved predicts as that of the same run in one piece, byte by byte.
func TestPredictOfSplit(t *testing.T) {
	t.Parallel()
	dir, said := t.TempDir(), []string{}
	for i, split := range []string{"", "--heter 1 --set heter.micro-batches=1 "} {
		saved := filepath.Join(dir, strconv.Itoa(i))
		if status, _, errs := command(t, "train ctr-dnn --data synthetic --batch 256 --epochs 1 --train-limit 1024 --eval-limit 256 --sync bsp --servers 1 --np 1 "+split+"--progress none --checkpoint "+saved); status != 0 {
			t.Fatal(errs)
		}
		status, out, errs := command(t, "predict "+saved+" --data synthetic --progress none --format csv")
		if status != 0 || !strings.HasPrefix(out, "row,probability\n0,0.") {
			t.Fatalf("status %d, %.100q, %s", status, out, errs)
		}
		said = append(said, out)
		checkRefused(t, exitFailed, "export "+saved+" --out "+filepath.Join(dir, "w.safetensors"), "are on the run's servers: --format bundle writes them and the rest of the model")
	}
	if said[0] != said[1] {
		t.Error("they predict otherwise")
	}
}

// What servers have saved is read without any, or by as many servers as one likes: the same bytes, from the standard input, too.
func TestPredictOfServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saved := filepath.Join(dir, "saved")
	if status, _, errs := command(t, "train ctr-dnn --data synthetic --batch 512 --epochs 1 --train-limit 2048 --eval-limit 600 --sync bsp --np 2 --progress none --checkpoint "+saved); status != 0 {
		t.Fatal(errs)
	}
	status, first, errs := command(t, "predict "+saved+" --data synthetic --np 1 --progress none --format csv")
	if status != 0 || !strings.HasPrefix(first, "row,probability\n0,0.") {
		t.Fatalf("status %d, %.100q, %s", status, first, errs)
	}
	if strings.Contains(errs, "server") {
		t.Errorf("there are servers: %s", errs)
	}
	for _, flags := range []string{"--np 2", "--np 2 --servers 2"} {
		if status, again, errs := command(t, "predict "+saved+" --data synthetic "+flags+" --progress none --format csv"); status != 0 || again != first || strings.Contains(errs, "parameter server") != strings.Contains(flags, "servers") {
			t.Errorf("%s: status %d, %.100q, %s", flags, status, again, errs)
		}
	}
	found := map[string]any{}
	for _, flags := range []string{"", "--np 2", "--np 2 --servers 2"} {
		status, text, errs := command(t, "eval "+saved+" --data synthetic "+flags+" --progress none --json -")
		if status != 0 {
			t.Fatal(errs)
		}
		got := lastObject(t, text)
		if flags == "--np 2" {
			found["loss"], found["figures"] = got["eval_loss"], got["eval_auc"]
		}
		if flags == "--np 2 --servers 2" && (got["eval_loss"] != found["loss"] || got["eval_auc"] != found["figures"] || found["loss"] == nil) {
			t.Errorf("eval with servers finds %v, without %v", got, found)
		}
	}
	row := "1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" + strings.Repeat("\tab12cd34", 26) + "\n"
	piped := exec.Command(os.Args[0], words("predict "+saved+" --data - --progress none")...)
	piped.Stdin = strings.NewReader(row + row)
	if text, err := piped.Output(); err != nil || strings.Count(string(text), "\n") != 2 || !strings.HasPrefix(string(text), `{"row":0,"probability":0.`) {
		t.Errorf("from the standard input: %v, %q", err, text)
	}
	if err := os.RemoveAll(filepath.Join(saved, "start-1", "server-0", "checkpoints")); err != nil {
		t.Fatal(err)
	}
	if status, text, errs := command(t, "predict "+saved+" --data synthetic --progress none"); status == 0 || text != "" || !strings.Contains(errs, "start-1") {
		t.Errorf("without the servers' parts: status %d, %q, %s", status, text, errs)
	}
}

// A language model goes on from a prompt.
func TestPredictWritesText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, saved, out := filepath.Join(dir, "text"), filepath.Join(dir, "saved"), filepath.Join(dir, "out")
	if err := os.WriteFile(text, []byte(strings.Repeat("the cat sat\n", 40)), 0o666); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := command(t, "train gpt-mini --train-file "+text+" --eval-file "+text+" --batch 2 --progress none --checkpoint "+saved); status != 0 {
		t.Fatal(errs)
	}
	status, first, errs := command(t, "predict "+saved+" --prompt the --tokens 20 --temperature 0")
	if status != 0 || !strings.HasPrefix(first, "the") || len(first) != 24 {
		t.Errorf("status %d, %q, %s", status, first, errs)
	}
	if status, _, errs = command(t, "predict "+saved+" --prompt the --tokens 20 --temperature 0 --out "+out); status != 0 {
		t.Error(errs)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != first {
		t.Errorf("%q, %v", got, err)
	}
	for line, want := range map[string]string{
		"--data " + text: "give it --prompt", "--prompt a --data " + text: "--prompt with --data", "--prompt a --np 2": "by one rank", "--prompt a --top 2": "no effect with --prompt",
		"--prompt a --tokens 0": "0 tokens", "--prompt a --temperature -1": "temperature -1",
	} {
		if status, text, errs := command(t, "predict "+saved+" "+line); status == 0 || text != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, %q, want %q", line, status, text, errs, want)
		}
	}
}

// What was trained on arrays is told of a .npz of samples alone: the same bytes from two ranks and from a .npy, most of them right.
func TestPredictOfArrays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const n = 400
	x, y := make([]float32, 2*n), make([]int64, n)
	for i := range n {
		y[i] = int64(i * i % 97 / 50)
		x[2*i], x[2*i+1] = float32(i*i%97)/97, float32(i%3)
	}
	samples := weights.Tensor{Name: "x", Shape: []int{n, 2}, Data: x}
	file := func(name string, write func(w io.Writer) error) string {
		path := filepath.Join(dir, name)
		if err := dirlock.WriteFile(path, write); err != nil {
			t.Fatal(err)
		}
		return path
	}
	both := file("both.npz", func(w io.Writer) error {
		return weights.WriteNPZ(w, []weights.Tensor{samples, {Name: "y", Shape: []int{n}, Ints: y}})
	})
	alone := file("alone.npz", func(w io.Writer) error { return weights.WriteNPZ(w, []weights.Tensor{samples}) })
	one := file("one.npy", func(w io.Writer) error {
		z, err := zip.OpenReader(alone)
		if err != nil {
			return err
		}
		defer z.Close()
		r, err := z.File[0].Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		return err
	})
	saved := filepath.Join(dir, "saved")
	if status, _, errs := command(t, "train mlp --data "+both+" --np 2 --batch 32 --epochs 12 --lr 0.05 --progress none --checkpoint "+saved); status != 0 {
		t.Fatal(errs)
	}
	status, first, errs := command(t, "predict "+saved+" --data "+alone+" --progress none")
	lines := strings.Split(strings.TrimSpace(first), "\n")
	if status != 0 || withoutChoice(errs) != "" || len(lines) != n {
		t.Fatalf("status %d, %.200q, %s", status, first, errs)
	}
	right := 0
	for i, line := range lines {
		if strings.HasPrefix(line, fmt.Sprintf(`{"row":%d,"prediction":"%d",`, i, y[i])) {
			right++
		}
	}
	if right < n*9/10 {
		t.Errorf("%d of %d are right, such as %s", right, n, lines[0])
	}
	for _, line := range []string{alone + " --np 2", both, one} {
		if status, again, errs := command(t, "predict "+saved+" --progress none --data "+line); status != 0 || again != first {
			t.Errorf("%s: status %d, %s, %.200q", line, status, errs, again)
		}
	}
}

// TestPredictOfImages: an image is predicted, and each image of a folder of classes, not a held-out
// share, also beside an empty val/; with the file in CSV. An archive of such a folder is refused.
func TestPredictOfImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	photos, saved := filepath.Join(dir, "photos"), filepath.Join(dir, "saved")
	paths := colouredImages(t, photos, 12)
	if status, _, errs := command(t, "train mlp --data "+photos+" --image-size 8 --batch 8 --epochs 1 --eval-split 0.4 --progress none --checkpoint "+saved); status != 0 {
		t.Fatal(errs)
	}
	files := map[string][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files["train/"+filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path)] = b
	}
	datatest.Write(t, dir, map[string][]byte{"photos.tar.gz": datatest.Compress(datatest.Pack(t, "", files))})
	checkRefused(t, exitFailed, "predict "+saved+" --progress none --data "+filepath.Join(dir, "photos.tar.gz"), "photos.tar.gz: an archive without images for evaluation", "unpack it")
	if err := os.Mkdir(filepath.Join(photos, "val"), 0o777); err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string][]string{photos: paths, filepath.Join(photos, "red"): paths[12:], paths[3]: paths[3:4]} {
		status, out, errs := command(t, "predict "+saved+" --format csv --progress none --data "+data)
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		if status != 0 || err != nil || len(rows) != 1+len(want) || strings.Join(rows[0], ",") != "row,file,prediction,probability" {
			t.Errorf("%s: status %d, %v, %s, %d rows of %d, %.100q", data, status, err, errs, len(rows), 1+len(want), out)
			continue
		}
		for i, path := range want {
			if row := rows[1+i]; row[0] != strconv.Itoa(i) || row[1] != path {
				t.Errorf("%s: %v, want row %d of %s", data, row, i, path)
			}
		}
	}
}

// colouredImages writes n images of each of two classes, and returns their paths in order.
func colouredImages(t *testing.T, dir string, n int) (paths []string) {
	for _, class := range []string{"blue", "red"} {
		if err := os.MkdirAll(filepath.Join(dir, class), 0o777); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			m := image.NewNRGBA(image.Rect(0, 0, 8, 8))
			for j := range 64 {
				m.SetNRGBA(j%8, j/8, map[string]color.NRGBA{"blue": {B: 200, G: uint8(i), A: 255}, "red": {R: 200, G: uint8(i), A: 255}}[class])
			}
			var b bytes.Buffer
			path := filepath.Join(dir, class, fmt.Sprintf("%02d.png", i))
			if err := errors.Join(png.Encode(&b, m), os.WriteFile(path, b.Bytes(), 0o666)); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
	}
	return paths
}

// TestPredictCountsUnseenWords: predictions and evaluations count the rows with words that training
// has not seen, for any number of ranks.
func TestPredictCountsUnseenWords(t *testing.T) {
	t.Parallel()
	table, saved := predictable(t)
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := 5; i < 45; i += 4 {
		rows[i] = strings.NewReplacer(",a,", ",new,", ",b,", ",new,", ",c,", ",other,").Replace(rows[i])
	}
	other := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(other, []byte(strings.Join(rows, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, np := range []string{"1", "2", "3"} {
		status, out, errs := command(t, "predict "+saved+" --data "+other+" --progress none --np "+np)
		if want := `column "word": in 10 rows a value that training has not seen`; status != 0 || strings.Count(out, "\n") != 400 || strings.Count(errs, want) != 1 {
			t.Errorf("%s ranks: status %d, got %s\nwant %s", np, status, errs, want)
		}
	}
	if status, out, errs := command(t, "eval "+saved+" --data "+other+" --json - --np 2"); status != 0 || !strings.Contains(out, `"unseen":{"word":10}`) {
		t.Errorf("eval: status %d, %s%s", status, out, errs)
	}
}
