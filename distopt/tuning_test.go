package distopt

import (
	"errors"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
)

// Prepare gives later strategies their settings; one that has them refuses.
func TestPrepare(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		w, err := newRig(g, padded(), Config{})
		if err != nil {
			return err
		}
		o := w.o
		err = errors.Join(o.Prepare(0.25, 3), o.SetStrategy(DLGS))
		if chain, _ := o.cfg.NewChain(); err != nil || o.Spars() != 0.25 || chain.String() != "dlgs(0.25, every 3) > fp32" {
			t.Errorf("after Prepare %v, %v; %v", o.Spars(), chain, err)
		}
		if err := o.Prepare(0.5, 0); err == nil || !strings.Contains(err.Error(), "has its spars already") {
			t.Errorf("under dlgs: %v", err)
		}
		if err := errors.Join(o.SetStrategy(FP32)); err != nil {
			return err
		}
		if err := o.Prepare(7, -1); err == nil || !strings.Contains(err.Error(), "spars 7") && !strings.Contains(err.Error(), "dlgs-every -1") {
			t.Errorf("bad settings: %v", err)
		}
		if o.Reducer() == nil {
			t.Error("no reducer")
		}
		return nil
	})
}

func TestDensity(t *testing.T) {
	chain, err := compress.NewChain(compress.TopK{Ratio: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  Config
		want float64
	}{
		{Config{}, 0}, {Config{Strategy: FP16}, 0}, {Config{Strategy: DLGS, Spars: 0.1}, 0.1}, {Config{Strategy: TopK}, DefaultSpars},
		{Config{Strategy: SparseThreshold, Spars: 0.1}, 0}, {Config{Chain: chain}, 0}, {Config{Strategy: "x"}, 0},
	} {
		if got := c.cfg.Density(); got != c.want {
			t.Errorf("%+v: density %v, want %v", c.cfg, got, c.want)
		}
	}
}
