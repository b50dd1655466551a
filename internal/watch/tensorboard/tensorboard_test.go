package tensorboard_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ringo-ml/ringo/internal/watch/tensorboard"
)

// event is what tensorflow/core/util/event.proto says of an event, as far as scalars go.
type event struct {
	wall    float64
	step    int64
	version string
	scalars []tensorboard.Scalar
}

// decode reads a file as the format is published, and says how many bytes at the end are of no whole record.
func decode(t *testing.T, b []byte) (events []event, left int) {
	t.Helper()
	sum := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return ((c >> 15) | (c << 17)) + 0xa282ead8
	}
	for len(b) >= 12 {
		n := binary.LittleEndian.Uint64(b)
		if got := binary.LittleEndian.Uint32(b[8:]); got != sum(b[:8]) {
			t.Fatalf("event %d: the length's checksum is %#x, want %#x", len(events), got, sum(b[:8]))
		}
		if uint64(len(b)) < 16+n {
			break
		}
		body := b[12 : 12+n]
		if got := binary.LittleEndian.Uint32(b[12+n:]); got != sum(body) {
			t.Fatalf("event %d: its checksum is %#x, want %#x", len(events), got, sum(body))
		}
		var e event
		each(t, body, func(field protowire.Number, number uint64, in []byte) {
			switch field {
			case 1:
				e.wall = math.Float64frombits(number)
			case 2:
				e.step = int64(number)
			case 3:
				e.version = string(in)
			case 5:
				each(t, in, func(_ protowire.Number, _ uint64, value []byte) {
					var s tensorboard.Scalar
					each(t, value, func(field protowire.Number, number uint64, in []byte) {
						if field == 1 {
							s.Tag = string(in)
						} else if field == 2 {
							s.Value = float64(math.Float32frombits(uint32(number)))
						}
					})
					e.scalars = append(e.scalars, s)
				})
			}
		})
		events = append(events, e)
		b = b[16+n:]
	}
	return events, len(b)
}

func each(t *testing.T, b []byte, f func(field protowire.Number, number uint64, in []byte)) {
	t.Helper()
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		var number uint64
		var in []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			number, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			number = uint64(v)
		default:
			in, n = protowire.ConsumeBytes(b)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		f(field, number, in)
	}
}

func write(t *testing.T, dir string) []byte {
	t.Helper()
	w, err := tensorboard.Create(dir, time.Unix(1700000000, 500e6))
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(3) {
		if err := w.Add(step*1e10, time.Unix(1700000001+step, 0), tensorboard.Scalar{Tag: "epoch/eval_loss", Value: 1 / float64(step)}, tensorboard.Scalar{Tag: "ä", Value: -0.5}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWriter(t *testing.T) {
	b := write(t, filepath.Join(t.TempDir(), "runs", "a"))
	// As every event file of TensorFlow begins: the length 24 and its checksum, then the field of the time.
	if begins := []byte("\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\"\t"); !bytes.HasPrefix(b, begins) {
		t.Errorf("the file begins with % x, want % x", b[:len(begins)], begins)
	}
	events, left := decode(t, b)
	const want = "[{1.7000000005e+09 0 brain.Event:2 []} {1.700000001e+09 0  [{epoch/eval_loss +Inf} {ä -0.5}]} " +
		"{1.700000002e+09 10000000000  [{epoch/eval_loss 1} {ä -0.5}]} {1.700000003e+09 20000000000  [{epoch/eval_loss 0.5} {ä -0.5}]}]"
	if got := fmt.Sprint(events); got != want || left != 0 {
		t.Errorf("%d bytes left of\n%s\nwant\n%s", left, got, want)
	}
	if events, _ := decode(t, b[:len(b)-1]); len(events) != 3 {
		t.Errorf("%d events in a file without its last byte, want 3", len(events))
	}
}

// Another writer at the same time has a file of its own.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	first, second := write(t, dir), write(t, dir)
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 || !bytes.Equal(first, second) {
		t.Errorf("%d files, %v, want 2 with the same events", len(files), err)
	}
}

func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := tensorboard.Create(file, time.Now()); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func ExampleWriter() {
	dir, err := os.MkdirTemp("", "runs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	w, err := tensorboard.Create(dir, time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := range int64(10) {
		loss := 1 / float64(1+step)
		if err := w.Add(step, time.Now(), tensorboard.Scalar{Tag: "loss/train", Value: loss}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(w.Close())
	// Output: <nil>
}
