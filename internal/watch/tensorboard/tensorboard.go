// Package tensorboard writes figures of a run as event files, which TensorBoard draws.
//
// An event file is a sequence of records, each a length, a checksum of the length, an event in protobuf's wire format
// (tensorflow/core/util/event.proto) and a checksum of that. A file that ends within a record, as that of a run which was
// killed, is read up to there.
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

// Scalar is a figure. TensorBoard puts tags with the same text before their first slash next to each other.
type Scalar struct {
	Tag   string
	Value float64 // kept as a float32; NaN and infinities are drawn as such
}

// Writer appends to an event file. It is used by one goroutine at a time. Nothing is buffered: what was added is in the file.
type Writer struct {
	f    *os.File
	text []byte // a record
}

// version is what the first event of a file says of its layout.
const version = "brain.Event:2"

// Create makes an event file in dir, and dir where there is none. The name has the time and this host's name, and no file takes
// another's place: runs that go on in the same folder are drawn as one.
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

// Path is the file.
func (w *Writer) Path() string { return w.f.Name() }

// Add adds an event with the figures that there were after so many steps.
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

// wallTime appends the field that all events have, in seconds since 1970.
func wallTime(event []byte, now time.Time) []byte {
	seconds := float64(now.UnixNano()) / 1e9
	return protowire.AppendFixed64(protowire.AppendTag(event, 1, protowire.Fixed64Type), math.Float64bits(seconds))
}

// write appends a record in one call, so that only a full disk or a crash of the host cuts it.
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

// masked is the checksum of records. A sum of bytes that hold their own sum would say little, so it is turned and moved.
func masked(b []byte) uint32 {
	sum := crc32c.Checksum(b)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }
