package data

import (
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// A permuted column of a table has the same values in another order; other columns and the labels
// are unchanged, and the order depends on the seed alone.
func TestPermutedChangesOneColumn(t *testing.T) {
	text, dir := "day,town,size,y\n", t.TempDir()
	for i := range 300 {
		text += fmt.Sprintf("2024-%02d-%02d,%c,%d,%d\n", 1+i%12, 1+i%28, 'a'+i%5, i*7%100, i%2)
	}
	datatest.Write(t, dir, map[string][]byte{"t.csv": []byte(text)})
	s, err := Open("table", Config{Dir: filepath.Join(dir, "t.csv"), Split: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	before, shape := all(t, s.Eval), s.Eval.Shape()
	width := shape.Size()
	columns := func(b *Batch) map[string][]string {
		out := map[string][]string{}
		for i := range b.N {
			v := b.Values[i*width:][:width]
			for name, value := range map[string]any{"day": v[:width-1], "size": v[width-1:], "town": b.IDs[i], "labels": b.Labels[i]} {
				out[name] = append(out[name], fmt.Sprint(value))
			}
		}
		return out
	}
	was := columns(before)
	var names []string
	for k := 0; ; k++ {
		name, src := s.Permuted(k, 1)
		if name == "" {
			break
		}
		names = append(names, name)
		now := columns(all(t, src))
		_, again := s.Permuted(k, 1)
		_, other := s.Permuted(k, 2)
		if !reflect.DeepEqual(all(t, again), all(t, src)) || reflect.DeepEqual(columns(all(t, other)), now) {
			t.Errorf("%s: the order is not of the seed alone", name)
		}
		for column, values := range now {
			same := slices.Equal(values, was[column])
			if same != (column != name) || !slices.Equal(slices.Sorted(slices.Values(values)), slices.Sorted(slices.Values(was[column]))) {
				t.Errorf("%s permuted: column %s equal %v", name, column, same)
			}
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(names)), []string{"day", "size", "town"}) {
		t.Errorf("columns %q", names)
	}
}

// A permuted slot of clicks has the bags of other samples, and the other slots are unchanged.
func TestPermutedChangesOneSlot(t *testing.T) {
	s, err := Open("criteo", Config{Dir: Synthetic, Keys: true, TrainLimit: 10, EvalLimit: 50})
	if err != nil {
		t.Fatal(err)
	}
	before, slots := all(t, s.Eval), len(s.Eval.Shape().Slots)
	count := 0
	for k := 0; ; k++ {
		name, src := s.Permuted(k, 3)
		if name == "" {
			break
		}
		now := all(t, src)
		changed := map[string]bool{}
		for i := range now.N {
			for slot := range slots {
				if !slices.Equal(now.Bags.Bag(slot, now.N, i), before.Bags.Bag(slot, now.N, i)) {
					changed[s.Eval.Shape().Slots[slot].Name] = true
				}
			}
		}
		if len(changed) > 1 || len(changed) == 1 && !changed[name] || !strings.HasPrefix(name, "number") && len(changed) == 0 && k < 15 {
			t.Errorf("%s permuted: slots %v changed", name, changed)
		}
		count++
	}
	if count != slots+s.Eval.Shape().Size() {
		t.Errorf("%d inputs", count)
	}
}

// Places of samples are the lines of a table, also of a split and of another file, rows of clicks
// and arrays, and files of images.
func TestPlacesNameFilesAndLines(t *testing.T) {
	dir, text := t.TempDir(), "x,word,y\n"
	for i := range 200 {
		text += fmt.Sprintf("%d,w%d,%d\n", i, i%7, 2*i)
	}
	plain := image.NewNRGBA(image.Rect(0, 0, 8, 8))
	draw.Draw(plain, plain.Rect, image.NewUniform(color.NRGBA{200, 40, 90, 255}), image.Point{}, draw.Src)
	good := datatest.EncodePNG(plain)
	tree := map[string][]byte{}
	for i := range 40 {
		tree[fmt.Sprintf("c%d/%d.png", i%2, i)] = good
	}
	datatest.Write(t, dir, map[string][]byte{"t.csv": []byte(text), "u.csv": []byte(text)})
	file := filepath.Join(dir, "t.csv")
	for _, c := range []Config{{Dir: file, Split: 0.3}, {TrainFile: file, EvalFile: filepath.Join(dir, "u.csv")}} {
		s, err := Open("table", c)
		if err != nil {
			t.Fatal(err)
		}
		goal, _ := s.Encoder.Goal()
		b := all(t, s.Eval)
		samples := []int32{int32(b.N) - 1, 0, 7}
		places, values, _ := s.Places(samples)
		for i, n := range samples {
			row := int(goal.Value(b.Targets[n])/2 + 0.5)
			want := fmt.Sprintf("%s: line %d", map[bool]string{true: filepath.Join(dir, "u.csv"), false: file}[c.EvalFile != ""], row+2)
			if places[i] != want || !slices.Equal(values[i], []string{fmt.Sprintf("x=%d", row), fmt.Sprintf("word=w%d", row%7), fmt.Sprintf("y=%d", 2*row)}) {
				t.Errorf("sample %d: %q, %q, want %q", n, places[i], values[i], want)
			}
		}
	}
	s, err := Open("images", Config{Dir: datatest.WriteTree(t, tree), ImageSize: 8, Split: 0.4})
	if err != nil {
		t.Fatal(err)
	}
	places, _, pictures := s.Places([]int32{1})
	if places[0] != s.Eval.(*encoded).Pictures[1].Path || !strings.HasSuffix(places[0], ".png") {
		t.Errorf("image %q", places)
	}
	r, g, b, _ := decodePicture(t, pictures[0]).At(3, 5).RGBA()
	for i, d := range []int{int(r>>8) - 200, int(g>>8) - 40, int(b>>8) - 90} {
		if max(d, -d) > 1 {
			t.Errorf("plane %d of the picture: %d off", i, d)
		}
	}
	s, err = Open("mnist", Config{Dir: Synthetic, TrainLimit: 10, EvalLimit: 10})
	if err != nil {
		t.Fatal(err)
	}
	places, values, pictures := s.Places([]int32{1})
	if places[0] != "" || values[0] != nil || decodePicture(t, pictures[0]).Bounds().Dx() != 28 {
		t.Errorf("generated: %q, %q", places, values)
	}
}

// decodePicture returns the image of a data: URL.
func decodePicture(t *testing.T, url string) image.Image {
	t.Helper()
	text, ok := strings.CutPrefix(url, "data:image/png;base64,")
	m, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if !ok || err != nil {
		t.Fatalf("picture %.40q: %v", url, err)
	}
	return m
}
