// Package tensorboard writes the metrics of a run as TensorBoard event files.
//
// An event file is a sequence of records: a length, a checksum of the length, an event in
// protobuf's wire format (tensorflow/core/util/event.proto) and a checksum of the event. Readers
// accept a file that ends within a record, as after a killed run.
package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ringo-ml/ringo/internal/crc32c"
)

// Scalar is a value. TensorBoard groups tags by the text before their first slash.
type Scalar struct {
	Tag   string
	Value float64 // stored as float32; NaN and infinities are displayed as such
}

// Writer appends to an event file, without buffering. Not safe for concurrent use.
type Writer struct {
	f    *os.File
	text []byte // record buffer
}

const version = "brain.Event:2"

// Create creates an event file in dir, and dir if missing. The name contains the time and the host
// name, and is unique: TensorBoard displays continued runs in a folder together.
func Create(dir string, now time.Time) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	for n := 0; ; n++ {
		name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), n)
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("tensorboard: %w", err)
		}
		w := &Writer{f: f}
		return w, w.write(protowire.AppendString(protowire.AppendTag(wallTime(nil, now), 3, protowire.BytesType), version))
	}
}

// Path returns the file's path.
func (w *Writer) Path() string { return w.f.Name() }

// Add appends an event with the values after the given step.
func (w *Writer) Add(step int64, now time.Time, scalars ...Scalar) error {
	var summary []byte
	for _, s := range scalars {
		value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), s.Tag)
		value = protowire.AppendFixed32(protowire.AppendTag(value, 2, protowire.Fixed32Type), math.Float32bits(float32(s.Value)))
		summary = protowire.AppendBytes(protowire.AppendTag(summary, 1, protowire.BytesType), value)
	}
	event := protowire.AppendVarint(protowire.AppendTag(wallTime(nil, now), 2, protowire.VarintType), uint64(step))
	return w.write(protowire.AppendBytes(protowire.AppendTag(event, 5, protowire.BytesType), summary))
}

// wallTime appends an event's time field, in seconds since 1970.
func wallTime(event []byte, now time.Time) []byte {
	seconds := float64(now.UnixNano()) / 1e9
	return protowire.AppendFixed64(protowire.AppendTag(event, 1, protowire.Fixed64Type), math.Float64bits(seconds))
}

// write appends a record in a single call: only a full disk or a host crash can cut the record.
func (w *Writer) write(event []byte) error {
	b := binary.LittleEndian.AppendUint64(w.text[:0], uint64(len(event)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, event...)
	w.text = binary.LittleEndian.AppendUint32(b, masked(event))
	if _, err := w.f.Write(w.text); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

// masked returns the checksum of a record, rotated and shifted as in the format, because a checksum
// over data that contain their own checksum is weak.
func masked(b []byte) uint32 {
	sum := crc32c.Checksum(b)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }
