package predict_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/predict"
	"github.com/ringo-ml/ringo/train"
)

// A model learns from a table whether a number is above 50, is saved, and is asked about two numbers that it has not seen.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	rows := "x,size\n"
	for x := range 400 {
		rows += fmt.Sprintf("%d,%s\n", x%100, []string{"small", "large"}[x%100/50])
	}
	table := filepath.Join(dir, "sizes.csv")
	if err := os.WriteFile(table, []byte(rows), 0o666); err != nil {
		fmt.Println(err)
		return
	}
	err = ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		mlp, err := models.Lookup("mlp")
		if err != nil {
			return err
		}
		cfg := train.Defaults(mlp, table)
		cfg.Checkpoint.Dir = filepath.Join(dir, "run")
		if _, err := train.Run(context.Background(), job, mlp, nil, cfg); err != nil {
			return err
		}
		p, err := train.NewPredictor(context.Background(), job, mlp, cfg)
		if err != nil {
			return err
		}
		in, err := data.OpenInput(p.Description(), data.InputConfig{Path: data.Stdin, Stdin: strings.NewReader("id,x\na,3\nb,97\n"), Batch: cfg.Batch, Columns: []string{"id"}})
		if err != nil {
			return p.End(err)
		}
		defer in.Close()
		var out strings.Builder
		_, err = predict.Run(p, job.Rank(), in, &out, predict.Config{Columns: []string{"id"}})
		for line := range strings.Lines(out.String()) {
			row, _, _ := strings.Cut(line, `,"probability"`)
			fmt.Println(row)
		}
		return p.End(err)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"row":0,"columns":{"id":"a"},"prediction":"small"
	// {"row":1,"columns":{"id":"b"},"prediction":"large"
}
