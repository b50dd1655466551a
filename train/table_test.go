package train

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/models"
)

// houses writes a table whose last column is a function of two others, and says where.
func houses(t *testing.T, rows int) string {
	t.Helper()
	var b strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	b.WriteString("area,town,price\n")
	for range rows {
		area, town := 20+80*r.Float64(), r.IntN(3)
		fmt.Fprintf(&b, "%.1f,%s,%.0f\n", area, []string{"Bern", "Zug", "Chur"}[town], 2000*area+90000*float64(town))
	}
	path := filepath.Join(t.TempDir(), "houses.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// A table trains what it has: a regression where a number is to be found, and classes where words are.
func TestTablesTrain(t *testing.T) {
	path := houses(t, 1500)
	spec, err := models.Lookup("mlp")
	if err != nil {
		t.Fatal(err)
	}
	for target, figure := range map[string]string{"": "r2", "town": "accuracy"} {
		err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
			cfg := Defaults(spec, path)
			cfg.Target, cfg.Epochs, cfg.Batch, cfg.LR, cfg.Split = target, 15, 32, 0.05, 0.2
			sum, err := Run(context.Background(), job, spec, nil, cfg)
			if got := sum.Eval[figure]; err == nil && got < 0.9 {
				return fmt.Errorf("%s is %v", figure, got)
			}
			return err
		})
		if err != nil {
			t.Errorf("target %q: %v", target, err)
		}
	}
}
