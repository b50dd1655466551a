package train

import (
	"image"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// brokenFolder is a folder of 8x8 images, some of which are bad, with files that are no samples.
func brokenFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, content string) {
		path := filepath.Join(dir, name)
		if os.MkdirAll(filepath.Dir(path), 0o777) != nil || os.WriteFile(path, []byte(content), 0o666) != nil {
			t.Fatalf("cannot write %s", path)
		}
	}
	im := image.NewNRGBA(image.Rect(0, 0, 8, 8))
	for i := range 12 {
		for _, class := range []string{"ant", "bee"} {
			for p := range im.Pix {
				im.Pix[p] = byte(p*(i+1) + len(class))
			}
			var b strings.Builder
			if err := png.Encode(&b, im); err != nil {
				t.Fatal(err)
			}
			put("train/"+class+"/"+string(rune('a'+i))+".png", b.String())
			if i < 4 {
				put("val/"+class+"/"+string(rune('a'+i))+".png", b.String())
			}
			put("train/.ipynb_checkpoints/a-checkpoint.png", b.String())
		}
	}
	put("train/ant/empty.png", "")
	put("train/bee/text.png", "no image")
	put("train/bee/zz.jpg", "\xff\xd8\xff")
	put("val/bee/0.png", "")
	put("val/bee/notes.txt", "")
	return dir
}

// TestLeftOutIsTheSameForAnyRanks names the same bad images and other files for 1, 2 and 4 ranks,
// before the first step.
func TestLeftOutIsTheSameForAnyRanks(t *testing.T) {
	cfg := small()
	cfg.Model.AnySize, cfg.Model.Input, cfg.ImageSize = true, []int{8, 8, 3}, 8
	cfg.Model.Data, cfg.Data, cfg.SkipBad, cfg.TrainLimit, cfg.EvalLimit, cfg.Batch, cfg.Epochs = "images", brokenFolder(t), 4, 0, 0, 2, 1
	var want []data.LeftOut
	for _, np := range []int{1, 2, 4} {
		sum, rec := onRanks(t, np, cfg)
		if want == nil {
			want = sum.LeftOut
		}
		bad := want[len(want)-1]
		if len(want) != 3 || bad.Kind != data.BadSample || bad.Count != 4 || !strings.Contains(bad.Names[3], "val/bee/0.png: byte 0: empty file") {
			t.Fatalf("np %d: %+v", np, want)
		}
		if !reflect.DeepEqual(sum.LeftOut, want) || !reflect.DeepEqual(rec.info.LeftOut, want) || rec.info.TrainSamples != 24 || rec.info.EvalSamples != 8 {
			t.Errorf("np %d: %+v of %d and %d samples", np, sum.LeftOut, rec.info.TrainSamples, rec.info.EvalSamples)
		}
	}
	cfg.SkipBad = 3
	for _, np := range []int{1, 2} {
		err := ringo.Local(t.Context(), np, ringo.Config{}, func(job *ringo.Job) error {
			_, err := observed(job, cfg, new(recorder))
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "val/bee/0.png") || !strings.Contains(err.Error(), "3 more before it") {
			t.Errorf("np %d: one bad image too many: %v", np, err)
		}
	}
}
