package cli

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

// Output is the output of a command: text lines and, with --json, one JSON object per line. The
// zero value discards output.
type Output struct {
	// Lines is the writer of text lines; nil discards them.
	Lines io.Writer
	// JSON is the writer of JSON lines; nil discards them.
	JSON io.Writer
	// File is the file of JSON, if Output must close a file; else nil.
	File io.Closer
}

// Open opens the file of --json, replaced at the first line; "" is none, - stdout (text to stderr).
func Open(cmd *cobra.Command, path string) (Output, error) { return OpenMore(cmd, path, false) }

// OpenMore is Open that appends to the file if more is set.
func OpenMore(cmd *cobra.Command, path string, more bool) (Output, error) {
	o := Output{Lines: cmd.OutOrStdout()}
	switch path {
	case "":
	case "-":
		o.Lines, o.JSON = cmd.ErrOrStderr(), cmd.OutOrStdout()
	default:
		f, err := pathname.Write(path, 0)
		if err != nil {
			return Output{}, fmt.Errorf("--json: %w", err)
		}
		o.JSON, o.File = &jsonFile{File: f, more: more}, f
	}
	return o, nil
}

// WithOutput opens the file of --json, calls do and closes the file.
func WithOutput(cmd *cobra.Command, path string, do func(out *Output) error) error {
	out, err := Open(cmd, path)
	if err != nil {
		return err
	}
	return errors.Join(do(&out), out.Close())
}

// jsonFile keeps a file's old contents until the first line, for runs that cannot start.
type jsonFile struct {
	*os.File
	more, begun bool
}

// Write prepares the file before the first line.
func (f *jsonFile) Write(p []byte) (int, error) {
	if !f.begun {
		if err := f.begin(); err != nil {
			return 0, err
		}
		f.begun = true
	}
	return f.File.Write(p)
}

// begin prepares the file for a first line: empties the file, or ends its last line. Non-files,
// such as pipes, need no preparation.
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
	_, err = f.File.Write([]byte{'\n'}) // the earlier run was killed within a line
	return err
}

func endsLine(path string, end int64) (bool, error) {
	f, err := pathname.Open(path)
	if err != nil {
		return false, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], end-1)
	return last[0] == '\n', errors.Join(err, f.Close())
}

// Writable returns an error for a file that cannot be written, and creates a missing file.
func Writable(flag, path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil // opening a pipe for a test would end its reader
	}
	file, err := pathname.Write(path, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return file.Close()
}

// Creatable returns an error if a file cannot be renamed to path later, and leaves no file.
func Creatable(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s: %s is a folder: name a file", flag, path)
	} else if err == nil && !info.Mode().IsRegular() {
		return Writable(flag, path)
	}
	probe, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Object writes v as a JSON line.
func (o *Output) Object(v any) error {
	if o.JSON == nil {
		return nil
	}
	line, err := json.Marshal(v)
	if err == nil {
		_, err = o.JSON.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// Line writes a text line.
func (o *Output) Line(format string, args ...any) {
	if o.Lines != nil {
		fmt.Fprintf(o.Lines, format+"\n", args...)
	}
}

// Result writes v as a text line and as JSON.
func (o *Output) Result(v any, format string, args ...any) error {
	o.Line(format, args...)
	return o.Object(v)
}

// Close closes the file, if any.
func (o *Output) Close() error {
	if o.File == nil {
		return nil
	}
	return o.File.Close()
}
