package jobfile_test

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/job/jobfile"
)

// A job file is assignments of settings, each with the line that it stands on.
func ExampleRead() {
	given, err := jobfile.Read("job.yaml", strings.NewReader("model: mnist\njob: {ranks: 2}\ntraining:\n  lr-schedule: 80:0.01\n  freeze: [conv1.*, conv2.*]\n"))
	for _, a := range given {
		fmt.Println(a.Path, "=", a.Text, "from", a.Origin)
	}
	fmt.Println(err)
	_, err = jobfile.Read("job.yaml", strings.NewReader("training:\n  batch: 1\n  batch: 2\n"))
	fmt.Println(err)
	// Output:
	// model = mnist from job.yaml:1
	// job.ranks = 2 from job.yaml:2
	// training.lr-schedule = 80:0.01 from job.yaml:4
	// training.freeze = conv1.*,conv2.* from job.yaml:5
	// <nil>
	// job.yaml:3: training.batch is given twice: first on line 2
}
