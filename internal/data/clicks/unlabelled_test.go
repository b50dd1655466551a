package clicks

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// Lines without a label, whatever they hold and however they are read, are parsed as the same lines
// with one; those with a label are parsed as they are.
func FuzzUnlabelled(f *testing.F) {
	line := strings.Repeat("\t", CriteoFields-2) + "\n"
	f.Add([]byte(line + line))
	f.Add([]byte("1\t" + line))
	f.Add([]byte("7\t-3" + line[1:] + "\n\nx"))
	f.Add([]byte(line + "1" + line[:20]))
	p := NewCriteoParser(100, true)
	f.Fuzz(func(t *testing.T, text []byte) {
		format := &Format{Default: p, Unlabelled: true}
		head, rest, err := format.begin("f", iotest.OneByteReader(bytes.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		if read, err := io.ReadAll(rest); err != nil || !bytes.Equal(read, text) {
			t.Fatalf("%q, %v of %q", read, err, text)
		}
		labelled, first := text, bytes.SplitN(text, []byte("\n"), 2)[0]
		if len(text) < MaxLine && bytes.Count(first, []byte("\t")) == CriteoFields-2 {
			labelled = nil
			for l := range bytes.Lines(text) {
				labelled = append(append(labelled, "0\t"...), l...)
			}
		}
		var got, want Block
		head.Parser.Parse(text, &got)
		p.Parse(labelled, &want)
		for i := range min(len(got.Faults), len(want.Faults)) {
			got.Faults[i].Offset, want.Faults[i].Offset = 0, 0 // the labels move it
		}
		if got.Lines != want.Lines || !reflect.DeepEqual(got.Faults, want.Faults) || !reflect.DeepEqual(got.Rows, want.Rows) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	})
}
