package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rowsOfHouses writes a table with a header of columns: area, age and dist are numbers, city a
// category, price a number that these decide, and kind a class. Words are replaced by rename.
func rowsOfHouses(t *testing.T, file, columns string, rename ...string) string {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	cities := []string{"Berlin", "Aachen", "Graz", "Linz"}
	var b strings.Builder
	fmt.Fprintln(&b, columns)
	for range 600 {
		area, age, dist, city, extra := 50+20*r.NormFloat64(), r.NormFloat64(), 80*r.NormFloat64()-300, r.IntN(4), r.NormFloat64()
		kind := "hut"
		if area > 50 {
			kind = map[bool]string{true: "barn", false: "mill"}[age > 0]
		}
		values := map[string]string{
			"area": fmt.Sprint(area), "age": fmt.Sprint(age), "dist": fmt.Sprint(dist), "city": cities[city], "pool": fmt.Sprint(extra), "kind": kind,
			"price": fmt.Sprint(3*area + 40*age - 0.2*dist + []float64{100, -60, 10, -120}[city]),
		}
		var row []string
		for _, c := range strings.Split(columns, ",") {
			row = append(row, values[c])
		}
		fmt.Fprintln(&b, strings.NewReplacer(rename...).Replace(strings.Join(row, ",")))
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// lossOf is the evaluation loss that a command's records end with, and its output.
func lossOf(t *testing.T, line string) (loss float64, out string) {
	t.Helper()
	records := filepath.Join(t.TempDir(), "records")
	status, out, errs := command(t, line+" --json "+records)
	if status != 0 {
		t.Fatalf("%s: status %d, %s", line, status, errs)
	}
	text, err := os.ReadFile(records)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last struct {
		EvalLoss float64 `json:"eval_loss"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	return last.EvalLoss, out + "\n" + string(text)
}

const houses = "--batch 32 --threads 1 --progress none "

// A run starts with the evaluation of the run that it begins with, to the last bit, though columns
// have another order, on any number of ranks and with servers.
func TestStartFromReorderedTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pre, goal := filepath.Join(dir, "pre"), " --set data.target=price "
	a := rowsOfHouses(t, filepath.Join(dir, "a.csv"), "area,age,dist,city,price")
	b := rowsOfHouses(t, filepath.Join(dir, "b.csv"), "price,dist,city,age,area")
	want, _ := lossOf(t, "train mlp --data "+a+goal+houses+"--epochs 6 --checkpoint "+pre)
	if !(want < 0.2) {
		t.Fatalf("the loss is %v: nothing was learnt", want)
	}
	for _, how := range []string{"", "--np 2 ", "--np 2 --sync bsp --servers 2 "} {
		evaluated := filepath.Join(t.TempDir(), "saved")
		got, out := lossOf(t, "train mlp --data "+b+goal+houses+"--epochs 1 --lr 1e-30 --init-from "+pre+" --checkpoint "+evaluated+" "+how)
		if how == "" && got != want || math.Abs(got-want) > 1e-6*want {
			t.Errorf("%q: the loss is %v, want %v", how, got, want)
		}
		for _, line := range []string{"columns keep the order, kinds, means and deviations of", `"initial":["begun with`} {
			if !strings.Contains(out, line) {
				t.Errorf("%q: %q is missing in %s", how, line, out)
			}
		}
		if again, _ := lossOf(t, "eval "+evaluated+" --progress none"); math.Abs(again-want) > 1e-6*want {
			t.Errorf("%q: eval finds %v, want %v", how, again, want)
		}
		if status, out, errs := command(t, "predict "+evaluated+" --data "+a); status != 0 || len(strings.Split(out, "\n")) < 600 {
			t.Errorf("%q: predict: status %d, %s%s", how, status, out, errs)
		}
	}
	checkRefused(t, exitFailed, "train mlp --data "+b+" --set data.target=area "+houses+"--init-from "+pre, "target price", "target area", "data.target")
}

// A column, category and class that the checkpoint lacks is printed as new, and one that the data
// lack as not used.
func TestStartPrintsNewNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pre := filepath.Join(dir, "pre")
	a := rowsOfHouses(t, filepath.Join(dir, "a.csv"), "area,age,dist,city,kind")
	want, _ := lossOf(t, "train mlp --data "+a+" "+houses+"--epochs 6 --checkpoint "+pre)
	b := rowsOfHouses(t, filepath.Join(dir, "b.csv"), "pool,kind,city,age,area", "Aachen", "Zwickau", "barn", "tent")
	for _, np := range []string{"1", "2"} {
		_, out := lossOf(t, "train mlp --data "+b+" "+houses+"--epochs 1 --init-from "+pre+" --np "+np)
		for _, line := range []string{"mapped by name: columns, categories, classes", "new, at first values: column pool; category city=Zwickau; class tent",
			"not used of the checkpoint: column dist; category city=Aachen; class barn"} {
			if strings.Count(out, line) != 2 { // printed, and in --json
				t.Errorf("%s ranks: %q is missing in %s", np, line, out)
			}
		}
	}
	again := rowsOfHouses(t, filepath.Join(dir, "c.csv"), "area,age,dist,city,kind", "barn", "zbarn")
	if got, _ := lossOf(t, "train mlp --data "+again+" "+houses+"--epochs 1 --lr 1e-30 --init-from "+pre); !(got > want) {
		t.Errorf("a class that was never seen has loss %v, want more than %v", got, want)
	}
	other := rowsOfHouses(t, filepath.Join(dir, "d.csv"), "area,age,dist,city,kind", "barn", "x", "hut", "y", "mill", "z")
	checkRefused(t, exitFailed, "train mlp --data "+other+" "+houses+"--init-from "+pre, "no class in common", "barn, hut, mill", "x, y, z")
	_, out := lossOf(t, "train mlp --data "+other+" "+houses+"--epochs 1 --set training.init-except=out.* --init-from "+pre)
	if !strings.Contains(out, "left at random first values: out.bias, out.weight") {
		t.Errorf("a new head: printed %s", out)
	}
}

// A run that starts by name and is continued needs the other run no more, and ends with the same
// bits as one in one piece.
func TestStartByNameResumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pre, saved, file := filepath.Join(dir, "pre"), filepath.Join(dir, "saved"), filepath.Join(dir, "w.safetensors")
	a := rowsOfHouses(t, filepath.Join(dir, "a.csv"), "area,age,dist,city,price")
	b := rowsOfHouses(t, filepath.Join(dir, "b.csv"), "price,pool,city,age,area", "Linz", "Wien")
	hashOf(t, "train mlp --data "+a+" --set data.target=price "+houses+"--epochs 2 --checkpoint "+pre)
	line := "train mlp --data " + b + " --set data.target=price " + houses + "--np 2 --init-from " + pre
	want := hashOf(t, line+" --epochs 3")
	hashOf(t, line+" --epochs 1 --checkpoint "+saved)
	if status, _, errs := command(t, "export "+pre+" --out "+file); status != 0 {
		t.Fatal(errs)
	}
	if err := os.RemoveAll(pre); err != nil {
		t.Fatal(err)
	}
	if got := hashOf(t, "train mlp --resume --epochs 3 --progress none --checkpoint "+saved); got != want {
		t.Errorf("continued: sha256 %s, want %s", got, want)
	}
	_, out := lossOf(t, "train mlp --data "+a+" --set data.target=price "+houses+"--epochs 1 --init-from "+file)
	if !strings.Contains(out, "assumed: columns, categories and classes are in the order of those that "+file) {
		t.Errorf("a file without names: printed %s", out)
	}
}

// clicksAs writes rows of clicks and their layout with columns in an order: label, user, item and
// price.
func clicksAs(t *testing.T, dir, order string) (options string) {
	t.Helper()
	columns := map[rune]string{'l': "{name: clicked, kind: label}", 'u': "{name: user, kind: category}", 'i': "{name: item, kind: category}", 'p': "{name: price, kind: number}"}
	file, said := filepath.Join(dir, order+".tsv"), filepath.Join(dir, order+".yaml")
	var rows, text strings.Builder
	text.WriteString("columns:\n")
	for _, c := range order {
		fmt.Fprintf(&text, "  - %s\n", columns[c])
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 800 {
		user, item, price := r.IntN(20), r.IntN(30), r.Float64()
		clicked := 0
		if (7*user+3*item)%5 < 2 {
			clicked = 1
		}
		var row []string
		for _, c := range order {
			row = append(row, map[rune]string{'l': fmt.Sprint(clicked), 'u': fmt.Sprintf("u%d", user), 'i': fmt.Sprintf("i%d", item), 'p': fmt.Sprintf("%.3f", price)}[c])
		}
		fmt.Fprintln(&rows, strings.Join(row, "\t"))
	}
	for name, content := range map[string]string{file: rows.String(), said: text.String()} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return " --set data.layout=" + said + " --train-file " + file + " --eval-file " + file + " " + houses
}

// Slots and numbers of clicks are matched by name by ranks and by servers.
func TestStartFromReorderedClicks(t *testing.T) {
	t.Parallel()
	for _, servers := range []string{"--set data.table-rows=500 ", "--sync bsp --servers 2 "} {
		dir := t.TempDir()
		pre := filepath.Join(dir, "pre")
		a, b := clicksAs(t, dir, "luip"), clicksAs(t, dir, "pilu")
		want, _ := lossOf(t, "train wide-deep "+a+servers+"--epochs 2 --checkpoint "+pre)
		got, out := lossOf(t, "train wide-deep "+b+servers+"--epochs 1 --lr 1e-30 --init-from "+pre)
		if math.Abs(got-want) > 1e-5*want {
			t.Errorf("%s: the loss is %v, want %v", servers, got, want)
		}
		if !strings.Contains(out, "mapped by name: columns, slots") {
			t.Errorf("%s: printed %s", servers, out)
		}
	}
}

// Class folders that sort differently keep their classes, and a renamed one is new.
func TestStartFromRenamedClassFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pre := filepath.Join(dir, "pre")
	const how = "train mlp --image-size 8 --threads 1 --progress none --batch 8 --data "
	folder := func(name string, classes ...string) string {
		root := filepath.Join(dir, name)
		for part, n := range map[string]int{"train": 16, "val": 8} {
			for i, class := range classes {
				for k := range n {
					writeTile(t, filepath.Join(root, part, class, fmt.Sprintf("%d.png", k)), i, k)
				}
			}
		}
		return root
	}
	lossOf(t, how+folder("a", "cat", "dog", "emu")+" --epochs 8 --checkpoint "+pre)
	_, out := lossOf(t, how+folder("b", "zcat", "dog", "emu")+" --epochs 1 --lr 1e-30 --init-from "+pre)
	for _, line := range []string{"mapped by name: classes", "new, at first values: class zcat", "not used of the checkpoint: class cat"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing in %s", line, out)
		}
	}
	var figures struct {
		Accuracy float64 `json:"eval_accuracy"`
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &figures); err != nil {
		t.Fatal(err)
	}
	if figures.Accuracy < 0.6 { // of two classes of three, which have moved by one place
		t.Errorf("accuracy %v: the other classes are not recognised", figures.Accuracy)
	}
}

// writeTile writes an image of 8 by 8 pixels in which one channel is bright.
func writeTile(t *testing.T, file string, channel, seed int) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(channel), uint64(seed)))
	im := image.NewRGBA(image.Rect(0, 0, 8, 8))
	for i := range im.Pix {
		im.Pix[i] = uint8(r.IntN(120))
		switch i % 4 {
		case channel:
			im.Pix[i] += 90
		case 3:
			im.Pix[i] = 255
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := errors.Join(png.Encode(&b, im), os.WriteFile(file, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}
