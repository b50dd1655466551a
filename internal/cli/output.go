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

// Output is where a command writes: lines for a person and, with --json, one object a line for a machine. The zero
// value writes nothing.
type Output struct {
	// Lines is for a person; nil: none.
	Lines io.Writer
	// JSON is for a machine; nil: none.
	JSON io.Writer
	// File is JSON's, if it is ours to close; else nil.
	File io.Closer
}

// Open opens the file of --json, whose first line takes the place of what the file holds; "" is none. With - the lines
// for a person go to stderr.
func Open(cmd *cobra.Command, path string) (Output, error) { return OpenMore(cmd, path, false) }

// OpenMore is Open, but with more, lines are added to what the file holds.
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

// WithOutput opens the file of --json, has do write to it, and closes it.
func WithOutput(cmd *cobra.Command, path string, do func(out *Output) error) error {
	out, err := Open(cmd, path)
	if err != nil {
		return err
	}
	return errors.Join(do(&out), out.Close())
}

// jsonFile is a file that keeps what it holds until the first line comes: a run that
// cannot start has nothing to say in its place.
type jsonFile struct {
	*os.File
	more, begun bool
}

// Write begins with the first line.
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

// Writable reports a file that cannot be written, which it makes if there is none.
func Writable(flag, path string) error {
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

// Creatable reports a file that could not get its name once it is whole, and leaves
// nothing there.
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

// Object writes v as a line of JSON.
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

// Line writes a line for a person.
func (o *Output) Line(format string, args ...any) {
	if o.Lines != nil {
		fmt.Fprintf(o.Lines, format+"\n", args...)
	}
}

// Result writes v as a line for a person and as JSON.
func (o *Output) Result(v any, format string, args ...any) error {
	o.Line(format, args...)
	return o.Object(v)
}

// Close closes the file, if there is one.
func (o *Output) Close() error {
	if o.File == nil {
		return nil
	}
	return o.File.Close()
}
