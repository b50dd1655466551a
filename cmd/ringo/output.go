package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// output is where rank 0 of a command writes: lines for a person and, with
// --json, one object a line for a machine.
type output struct {
	lines io.Writer // nil: none
	json  io.Writer // nil: none
	file  io.Closer // json's, if it is ours to close
}

// openOutput opens --json, whose first line takes the place of what the file holds. With
// --json - the lines go to stderr.
func openOutput(cmd *cobra.Command, path string) (output, error) {
	return openJSON(cmd, path, false)
}

// openJSON is openOutput; with more, lines are added to what the file holds.
func openJSON(cmd *cobra.Command, path string, more bool) (output, error) {
	o := output{lines: cmd.OutOrStdout()}
	switch path {
	case "":
	case "-":
		o.lines, o.json = cmd.ErrOrStderr(), cmd.OutOrStdout()
	default:
		f, err := pathname.Write(path, 0)
		if err != nil {
			return output{}, fmt.Errorf("--json: %w", err)
		}
		o.json, o.file = &jsonFile{File: f, more: more}, f
	}
	return o, nil
}

// jsonFile is a file that keeps what it holds until the first line comes: a run that
// cannot start has nothing to say in its place.
type jsonFile struct {
	*os.File
	more, begun bool
}

func (f *jsonFile) Write(p []byte) (int, error) {
	if !f.begun {
		if err := f.begin(); err != nil {
			return 0, err
		}
		f.begun = true
	}
	return f.File.Write(p)
}

// begin makes the file ready for a first line: empty, or ending with a whole one. What
// is no file, such as a pipe, always is.
func (f *jsonFile) begin() error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if !f.more {
		return f.Truncate(0)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return err
	}
	if whole, err := endsLine(f.Name(), end); err != nil || whole {
		return err
	}
	_, err = f.File.Write([]byte{'\n'}) // the run was killed within a line
	return err
}

// endsLine reports whether the last byte before a place of a file ends a line.
func endsLine(path string, end int64) (bool, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return false, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], end-1)
	return last[0] == '\n', errors.Join(err, f.Close())
}

// checkOutputs reports files that cannot be written before ranks are started: they
// would all say so, some of them only at the end of a run. It is left to rank 0 where
// that is on another host. trace is "" of commands that draw no timeline.
func (f *jobFlags) checkOutputs(json, trace string) error {
	if f.worker || f.byHand && f.rank > 0 {
		return nil
	}
	save := f.tuning.save
	switch {
	case trace == "-" || save == "-":
		return usagef("--trace and --save-profile want a file: only --json writes to stdout with -")
	case trace != "" && trace == json || save != "" && oneOf(save, json, trace):
		return usagef("--json, --trace and --save-profile want a file each")
	}
	return errors.Join(writable("--json", json), creatable("--trace", trace), creatable("--save-profile", save))
}

// writable reports a file that cannot be written, which it makes if there is none.
func writable(flag, path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil // its reader would end with the writer that only tried
	}
	file, err := pathname.Write(path, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return file.Close()
}

// creatable reports a file that could not get its name once it is whole, and leaves
// nothing there.
func creatable(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s: %s is a folder: name a file", flag, path)
	} else if err == nil && !info.Mode().IsRegular() {
		return writable(flag, path)
	}
	probe, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// object writes v as a line of JSON.
func (o *output) object(v any) error {
	if o.json == nil {
		return nil
	}
	line, err := json.Marshal(v)
	if err == nil {
		_, err = o.json.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// header writes a line for a person.
func (o *output) header(format string, args ...any) {
	if o.lines != nil {
		fmt.Fprintf(o.lines, format+"\n", args...)
	}
}

// result writes v as a line for a person and as JSON.
func (o *output) result(v any, format string, args ...any) error {
	if o.lines != nil {
		fmt.Fprintf(o.lines, format+"\n", args...)
	}
	return o.object(v)
}

func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	return o.file.Close()
}
