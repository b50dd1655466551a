// Package blackboxcmd is `ringo blackbox`: the activity of a failed job's processes.
package blackboxcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/blackbox"
)

// Command is `ringo blackbox`.
func Command() *cobra.Command {
	json, html := "", ""
	cmd := &cobra.Command{
		Use:   "blackbox [FILE...]",
		Short: "Show each process's last operations from a failed job",
		Long: "Show the black box of a failed job, a file that the launcher writes: the first operation that\n" +
			"differs between ranks or that some ranks did not finish, its bucket, the missing ranks, and\n" +
			"the activity and last operations of each process. The job's error message names the file;\n" +
			"without FILE the command shows your newest one. Processes started without a launcher write a\n" +
			"file each; several FILEs are merged, also while their processes run.",
		Example: "  ringo blackbox\n  ringo blackbox DIR/ringo-blackbox-20260102-150405-123456.json\n  ringo blackbox DIR/ringo-record-1a2b3c4d5e6f-*\n  ringo blackbox box.json --json -",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				path, err := newest()
				if err != nil {
					return err
				}
				args = []string{path}
				fmt.Fprintf(cmd.ErrOrStderr(), "the newest black box: %s\n", path)
			}
			box, err := read(args)
			if err != nil {
				return err
			}
			if html != "" {
				if err := dirlock.WriteFile(html, func(w io.Writer) error { return drawn(box).Write(w) }); err != nil {
					return fmt.Errorf("--html: %w", err)
				}
			}
			return cli.WithOutput(cmd, json, func(out *cli.Output) error { return print(out, strings.Join(args, " "), box) })
		},
	}
	cli.JSON(cmd, &json, "file, and one for each process,")
	cmd.Flags().StringVar(&html, "html", "", "draw the processes' last operations as a page in `FILE`")
	return cmd
}

// home returns the default folder of black boxes.
func home() string { return filepath.Join(os.TempDir(), fmt.Sprintf("ringo-blackbox-%d", os.Getuid())) }

// Folder creates the default folder of black boxes, readable by this user only. If no folder can be
// created, the black box that cannot be written is reported later.
func Folder() (string, error) {
	if err := dirlock.Private(home()); errors.Is(err, fs.ErrPermission) {
		return "", setting.Errorf("output.black-box", "%w; or name another folder, or none", err)
	}
	return home(), nil
}

// newest returns the last black box written by a launcher of this user.
func newest() (string, error) {
	entries, err := os.ReadDir(home())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	best, at := "", time.Time{}
	for _, e := range entries {
		box, _ := filepath.Match("ringo-blackbox-*.json", e.Name())
		if info, err := e.Info(); err == nil && box && (best == "" || info.ModTime().After(at)) {
			best, at = filepath.Join(home(), e.Name()), info.ModTime()
		}
	}
	if best == "" {
		return "", cli.Usagef("no black box in %s: name the file that a job's error names, or those of its processes", home())
	}
	return best, nil
}

// read reads one black box of a launcher, or the record files of processes together.
func read(paths []string) (*blackbox.File, error) {
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

// found is a black box as a JSON line.
type found struct {
	Event   string            `json:"event"` // "blackbox"
	File    string            `json:"file"`
	Written time.Time         `json:"written"`
	Why     string            `json:"why"`
	Finding *blackbox.Finding `json:"finding"` // null: no rank was in an operation, and all had done the same
}

type process struct {
	Event string `json:"event"` // "blackbox_process"
	blackbox.Process
}

func print(out *cli.Output, path string, box *blackbox.File) error {
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

// visible makes a rune of an untrusted file safe for a terminal.
func visible(r rune) rune {
	if unicode.IsControl(r) && r != '\n' {
		return unicode.ReplacementChar
	}
	return r
}
