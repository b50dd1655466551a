package trace

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func somePart() part {
	return part{
		rank: 3, offset: -5e9, bound: 12_345, dropped: 7,
		spans: []span{
			{track: Forward, name: "forward", start: 0, length: 10, bytes: -1, step: 0},
			{track: Exchange, name: "bucket 0", detail: "ring", start: 5, length: math.MaxInt64 - 5, bytes: 1 << 40, step: 12},
			{track: Exchange, name: "bucket 1", detail: "ring", start: 300, length: 0, bytes: 0, step: 12},
			{track: Checkpoint, name: "", start: 1 << 50, length: 3, bytes: -1, step: -1},
		},
	}
}

func TestPartsTravel(t *testing.T) {
	for _, want := range []part{somePart(), {rank: 0, spans: []span{}}} {
		got, err := decodePart(want.encode(nil), want.rank)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

func TestLongNamesAreCut(t *testing.T) {
	p := part{spans: []span{{name: strings.Repeat("x", maxText+1)}}}
	got, err := decodePart(p.encode(nil), 0)
	if err != nil || len(got.spans[0].name) != maxText {
		t.Errorf("a name of %d bytes, %v, want %d", len(got.spans[0].name), err, maxText)
	}
}

func TestBadPartsAreRefused(t *testing.T) {
	good := somePart().encode(nil)
	if _, err := decodePart(good, 2); err == nil || !strings.Contains(err.Error(), "rank 3, want 2") {
		t.Errorf("another rank's part: error %v", err)
	}
	for n := range good {
		if _, err := decodePart(good[:n], 3); err == nil {
			t.Errorf("the first %d of %d bytes are taken for all", n, len(good))
		}
	}
	if _, err := decodePart(append(good[:len(good):len(good)], 0), 3); err == nil {
		t.Error("a byte too many is ignored")
	}
	late := part{spans: []span{{start: math.MaxInt64, length: 1}}}
	if _, err := decodePart(late.encode(nil), 0); err == nil {
		t.Error("a span that ends beyond all time is accepted")
	}
}

func FuzzDecodePart(f *testing.F) {
	f.Add(somePart().encode(nil))
	f.Add(part{rank: 3}.encode(nil))
	f.Add([]byte{1, 3, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePart(b, 3)
		if err != nil {
			return
		}
		if p.rank != 3 || len(p.spans) > len(b) {
			t.Fatalf("%d bytes are %d spans of rank %d", len(b), len(p.spans), p.rank)
		}
		for _, s := range p.spans {
			if s.start < 0 || s.length < 0 || s.start+s.length < 0 || s.track >= tracks || len(s.name) > maxText {
				t.Fatalf("span %+v is accepted", s)
			}
		}
		again, err := decodePart(p.encode(nil), 3)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%+v, %v, want %+v", again, err, p)
		}
	})
}
