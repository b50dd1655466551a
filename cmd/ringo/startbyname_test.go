package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rowsOfHouses writes a table with a header of columns: area, age and dist are numbers, city a category, price a number that
// these decide, and kind a class. Words are replaced by rename.
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

// A run starts with the evaluation of the run that it begins with, to the last bit, though columns have another order,
// on any number of ranks and with servers.
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

// A column, category and class that the checkpoint lacks is printed as new, and one that the data lack as not used.
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

// A run that starts by name and is continued needs the other run no more, and ends with the same bits as one in one piece.
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
