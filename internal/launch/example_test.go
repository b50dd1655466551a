package launch_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/internal/launch"
)

// What is wrong with a job is said before any of its processes starts.
func ExampleRun() {
	err := launch.Run(context.Background(), launch.Config{Roles: []launch.Role{launch.Ranks(2, "no-such-program", "--np", "2")}, Version: "1"})
	fmt.Println(err)
	// Output:
	// cannot start "no-such-program": executable file not found in $PATH
}
