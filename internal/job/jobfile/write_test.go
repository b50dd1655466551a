package jobfile_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/job/jobfile"
	"github.com/ringo-ml/ringo/internal/setting"
)

func TestWrite(t *testing.T) {
	var b strings.Builder
	err := jobfile.Write(&b,
		setting.Assignment{Path: "model", Text: "mnist"}, setting.Assignment{Path: "training.batch", Text: "32"},
		setting.Assignment{Path: "ps.addresses", Text: "a:1,b:2"}, setting.Assignment{Path: "training.lr-schedule", Text: "80:0.01"},
		setting.Assignment{Path: "data.dir", Text: "/a folder"}, setting.Assignment{Path: "data.train-file", Text: ""}, setting.Assignment{Path: "data.eval-file", Text: "null"})
	want := "model: mnist\ntraining:\n  batch: 32\n  lr-schedule: 80:0.01\nps:\n  addresses: a:1,b:2\ndata:\n  dir: \"/a folder\"\n  train-file: \"\"\n  eval-file: \"null\"\n"
	if err != nil || b.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, b.String(), want)
	}
	for _, bad := range [][]setting.Path{{"a", "a"}, {"a", "a.b"}, {"a.b", "a"}, {""}} {
		var given []setting.Assignment
		for _, p := range bad {
			given = append(given, setting.Assignment{Path: p, Text: "1"})
		}
		if jobfile.Write(&b, given...) == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// What is written is read as it was, whatever a text holds.
func FuzzWriteRead(f *testing.F) {
	for _, seed := range []string{"", "null", "~", "true", "0x10", "1_000", "a: b", "- a", "#", "a #b", " a", "a\nb", "é\x85", "80:0.01", "!!str", "&a", "2024-01-01", "1e3", ".inf", "<<", "=", "\"", "'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text != strings.ToValidUTF8(text, "") {
			t.Skip()
		}
		var b bytes.Buffer
		if err := jobfile.Write(&b, setting.Assignment{Path: "a.b", Text: text}, setting.Assignment{Path: "c", Text: text}); err != nil {
			t.Fatal(err)
		}
		got, err := jobfile.Read("f", bytes.NewReader(b.Bytes()))
		if err != nil || len(got) != 2 || got[0].Text != text || got[1].Text != text {
			t.Errorf("%q is written\n%s\nand read as %v, %v", text, b.String(), got, err)
		}
	})
}
