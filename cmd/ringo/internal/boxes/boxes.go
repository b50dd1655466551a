// Package boxes is `ringo blackbox`: it says what the processes of a job were doing when it failed.
package boxes

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/blackbox"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/console"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Command is `ringo blackbox`.
func Command() *cobra.Command {
	json := ""
	cmd := &cobra.Command{
		Use:   "blackbox FILE...",
		Short: "Say what every process was doing when a job failed",
		Long: "Say what the file shows that a launcher has written of a job that failed: the first operation that\n" +
			"not all ranks had ended, or in which they differ, its bucket, who was missing, and of each process\n" +
			"what it was doing and its last operations. The job's error names the file. Processes that no\n" +
			"launcher has started leave a file each, which are merged, also while they work.",
		Example: "  ringo blackbox /tmp/ringo-blackbox-123456.json\n  ringo blackbox /tmp/ringo-record-1a2b3c4d5e6f-*\n  ringo blackbox box.json --json -",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return console.Usagef("`%s` takes the file that a job's error names, or those of its processes", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			box, err := read(args)
			if err != nil {
				return err
			}
			return console.Tell(cmd, json, func(out *console.Output) error { return tell(out, strings.Join(args, " "), box) })
		},
	}
	console.JSON(cmd, &json, "file, and one for each process,")
	return cmd
}

// read reads what a launcher has written, or what processes have left. Faults name the file and the place in it.
func read(paths []string) (*blackbox.Box, error) {
	path := paths[0]
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch memory, err := blackbox.Memory(f); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case memory:
		return blackbox.Gather(paths)
	case len(paths) > 1:
		return nil, fmt.Errorf("%s is of a whole job: it is read alone, and only the files that processes have left (ringo-record-*) are read together", path)
	}
	box, err := blackbox.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return box, nil
}

// found is a file as a line of JSON.
type found struct {
	Event   string            `json:"event"` // "blackbox"
	File    string            `json:"file"`
	Written time.Time         `json:"written"`
	Why     string            `json:"why"`
	Finding *blackbox.Finding `json:"finding"` // null: no rank was in an operation, and all had done the same
}

// process is one process of it.
type process struct {
	Event string `json:"event"` // "blackbox_process"
	blackbox.Process
}

func tell(out *console.Output, path string, box *blackbox.Box) error {
	var text strings.Builder
	if err := box.Print(&text); err != nil {
		return err
	}
	out.Line("%s", strings.Map(visible, strings.TrimSuffix(text.String(), "\n")))
	if err := out.Object(found{"blackbox", path, box.Written, box.Why, box.Find()}); err != nil {
		return err
	}
	for _, p := range box.Processes {
		if err := out.Object(process{"blackbox_process", p}); err != nil {
			return err
		}
	}
	return nil
}

// visible is a rune of a file, which may be anybody's, as a terminal may show it.
func visible(r rune) rune {
	if unicode.IsControl(r) && r != '\n' {
		return unicode.ReplacementChar
	}
	return r
}
