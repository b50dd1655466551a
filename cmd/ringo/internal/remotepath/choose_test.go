package remotepath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/setting"
)

// TestDownloadHasTheBest: a folder of a store arrives with its last and its best checkpoint, and a
// file alone.
func TestDownloadHasTheBest(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	far := t.TempDir()
	for _, step := range []int64{10, 20, 30} {
		if _, err := checkpoint.Save(far, checkpoint.State{Header: checkpoint.Header{
			Step: step, Settings: setting.Values{"training.monitor": "auc"}, More: map[string]string{"past": `{"best":{"metric":"auc","value":0.5,"epoch":1,"step":10}}`},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	none := func(string) (string, error) { return "", nil }
	for only, want := range map[string]string{"": "step-000000010.ringo", "step-000000020.ringo": "step-000000020.ringo"} {
		path, end, err := downloaded(t.Context(), "file://"+far, only, none)
		if err != nil {
			t.Fatal(err)
		}
		file, _, err := checkpoint.Choose(path)
		if err != nil || filepath.Base(file) != want {
			t.Errorf("%q: %s, %v, want %s", only, file, err, want)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	path, _, err := Checkpoint(t.Context(), "file://"+far+"/best", none)
	if file, _, choice := checkpoint.Choose(path); err != nil || choice != nil || file != checkpoint.PathOf(far, 10) {
		t.Errorf("%s, %v, %v", file, err, choice)
	}
	if _, _, err := downloaded(t.Context(), "file://"+t.TempDir(), "", none); !errors.Is(err, errNone) {
		t.Errorf("an empty folder: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*", "spool-*")); err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
}
