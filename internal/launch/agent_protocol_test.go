package launch

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
)

// Frames come as they were sent, and what is none is an error of few bytes' reading.
func TestFrames(t *testing.T) {
	var b bytes.Buffer
	all := []frame{{kind: frameHeartbeat, body: []byte{}}, {frameOut, 3, []byte("text")}, jsonFrame(frameStarted, 1<<20, started{PID: 7})}
	for _, f := range all {
		if err := writeFrame(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(b.Bytes())
	for _, want := range all {
		if f, err := readFrame(&b); err != nil || !reflect.DeepEqual(f, want) {
			t.Errorf("%v, %v, want %v", f, err, want)
		}
	}
	if _, err := readFrame(&b); err != io.EOF {
		t.Error(err)
	}
	if _, err := readFrame(bytes.NewReader(whole[:frameHeader+frameHeader+2])); err != nil {
		t.Error(err)
	}
	if _, err := readFrame(bytes.NewReader(whole[frameHeader : frameHeader+frameHeader+2])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if _, err := readFrame(bytes.NewReader([]byte("Welcome to this host!"))); !errors.Is(err, errFrame) {
		t.Error(err)
	}
	var s started
	if err := (frame{frameStarted, 0, []byte("{")}).read(&s); err == nil {
		t.Error("half a text was read")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{'o', 0, 0, 0, 1, 0, 0, 0, 2, 'a', 'b'})
	f.Add([]byte("Last login: today"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, got); err != nil || !bytes.Equal(again.Bytes(), b[:again.Len()]) {
			t.Fatalf("%v: %v, %q of %q", got, err, again.Bytes(), b)
		}
	})
}
