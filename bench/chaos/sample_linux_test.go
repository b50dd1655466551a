package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// sample are cases of each part that take little time.
var sample = map[string][]int{
	"servers":    {3},
	"operations": {0, 2, 4, 12, 16, 18},
	"pages":      {1, 3},
	"files":      {0, 1, 2, 3, 5, 7, 8},
	"odd":        {0, 1, 4, 20, 27, 33, 40, 84, 89, 98, 105, 117, 124, 132, 146, 148},
	"inputs":     {0, 1, 4, 13, 17, 20, 30, 33, 47, 60},
}

// TestMain makes this program a rank of a job where a case starts it as one.
func TestMain(m *testing.M) {
	if is, err := rank(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	} else if !is {
		m.Run()
	}
}

// A sample of the campaign: go run ./bench/chaos does all of it.
func TestSample(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	ringo := filepath.Join(t.TempDir(), "ringo")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", ringo, "../../cmd/ringo").CombinedOutput(); err != nil {
		t.Fatalf("building ringo: %v\n%s", err, out)
	}
	for part, cases := range sample {
		for _, n := range cases {
			o := options{Ringo: ringo, Only: part, Case: n, Seed: 1, Parallel: 1, Keep: t.TempDir()}
			t.Run(part, func(t *testing.T) {
				t.Parallel()
				var out bytes.Buffer
				if ok, err := campaign(context.Background(), o, &out); err != nil || !ok {
					t.Errorf("%v\n%s", err, &out)
				}
			})
		}
	}
}
