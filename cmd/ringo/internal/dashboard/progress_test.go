package dashboard

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/runlog"
)

// How far a job is counts all its seeds, and the time that is left goes by the rate of the run under way, from where it began or went on.
func TestProgress(t *testing.T) {
	now := begun
	h := newHub(func() time.Time { return now })
	add := func(v any) {
		b, err := json.Marshal(v)
		must(t, err)
		h.Add(b)
	}
	at := func(second int, epoch, done int) {
		now = begun.Add(time.Duration(second) * time.Second)
		add(progress{"progress", "train", epoch, 4, done, 10})
	}
	wants := func(share float64, left string) {
		t.Helper()
		p := h.Progress()
		got := "unknown"
		if p.TimeRemaining >= 0 {
			got = p.TimeRemaining.Round(time.Millisecond).String()
		}
		if !p.Known || p.Share < share-1e-9 || p.Share > share+1e-9 || got != left {
			t.Errorf("%+v, want %v, %v", p, share, left)
		}
	}
	if p := h.Progress(); p.Known || p.Figures != nil {
		t.Errorf("%+v", p)
	}
	add(runlog.Job{Event: "job", Settings: map[string]string{"training.seeds": "2"}})
	add(runlog.Info{Event: "run", Seed: 1, Model: "mlp", Epochs: 4})
	wants(0, "unknown")
	at(100, 1, 0)
	wants(0, "unknown")
	at(110, 2, 0) // a quarter in ten seconds: 30 s of this run are left, and 40 s of the next one
	wants(0.125, "1m10s")
	if at := h.head().At; at != "epoch 2 of 4, train 0 of 10, about 1m10s left" {
		t.Errorf("the head has %q", at)
	}
	now = now.Add(time.Hour) // nothing was told meanwhile
	wants(0.125, "1m10s")
	add(map[string]any{"event": "summary"})
	wants(0.5, "10s") // but the rate was that of a run which ended early
	add(runlog.Info{Event: "run", Seed: 2, Model: "mlp", Epochs: 4})
	wants(0.5, "unknown")
	at(200, 1, 0)
	at(220, 4, 0)
	wants(0.875, "6.667s")
	add(runlog.Info{Event: "run", Seed: 2, Model: "mlp", Epochs: 4, Resumed: "a checkpoint"}) // where it was at half
	at(300, 3, 0)
	at(310, 3, 5)
	wants(0.8125, "30s")
}

// The newest figures are those of the last step, and of the last epoch what steps do not have.
func TestProgressFigures(t *testing.T) {
	h := scene(t, 3)
	got := map[string]string{}
	for _, f := range h.Progress().Figures {
		if got[f.Name] != "" {
			t.Errorf("%s is twice there", f.Name)
		}
		got[f.Name] = f.Text
	}
	for name, want := range map[string]string{"epoch": "3", "epochs": "3", "loss": fmt.Sprint(2. / 12), "samples_per_s": "1012", "train_loss": "0.5", "eval_accuracy": fmt.Sprint(0.75 + 3*0.0501)} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if p := h.Progress(); p.Share != 1 || p.TimeRemaining != -1 || len(got) < 10 {
		t.Errorf("%+v", p)
	}
}
