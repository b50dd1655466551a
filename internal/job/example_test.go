package job_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/setting"
)

// A job is made of assignments, whatever gives them: the model's own settings, and over these what was said.
func ExampleNew() {
	spec, table, err := job.New(
		setting.Assignment{Path: "model", Text: "mnist"},
		setting.Assignment{Path: "data.dir", Text: "synthetic"},
		setting.Assignment{Path: "job.ranks", Text: "2"},
		setting.Assignment{Path: "ps.staleness", Text: "3", Origin: "--staleness"},
	)
	fmt.Println(spec.Model, spec.Ranks, spec.Train.Optimizer, spec.Train.Batch, err)
	fmt.Println(spec.Unused(table).Err())
	// Output:
	// mnist 2 sgd 64 <nil>
	// ps.staleness has no effect: it needs sync ssp
}
