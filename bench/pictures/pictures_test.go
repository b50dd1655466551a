package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The pictures of the docs are what this program draws: `go run ./bench/pictures` draws them anew.
func TestPicturesAreCurrent(t *testing.T) {
	const root = "../.."
	all, err := draw(root)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps, err := os.ReadFile(filepath.Join(root, "docs/steptimes.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		have, err := os.ReadFile(filepath.Join(root, folder, p.name))
		if err != nil || string(have) != p.text {
			t.Errorf("%s is not what would be drawn (%v): go run ./bench/pictures", p.name, err)
		}
		if !strings.Contains(string(readme)+string(steps), "pictures/"+p.name) {
			t.Errorf("nobody shows %s", p.name)
		}
	}
}

// What cannot be drawn is told, and what is there is drawn.
func TestDrawn(t *testing.T) {
	c, err := gradient("# x\n\nnn         the gradient of a is final: 2 values at 0\nexchange   the bucket from 0 to 2 is complete: all\ntransport      message 0/1/0: sends 8 bytes to rank 1\noptim      sgd updates the parameters from 0 to 2 by 0.5\n\n# y\n\nexchange   the bucket from 0 to 9 is complete\n")
	if err != nil {
		t.Fatal(err)
	}
	got := c.(tracks)
	if len(got.kinds) != 2 || got.kinds[0] != "bucket 0 to 2" || len(got.rows[2].boxes) != 1 || got.rows[3].boxes[0].from != 3 {
		t.Errorf("%+v", got)
	}
	c, err = timeline(`{"displayTimeUnit":"ms","traceEvents":[{"ph":"X","cat":"forward","name":"forward","pid":2,"tid":1,"ts":5000,"dur":1000,"args":{"step":3}},{"ph":"X","cat":"update","name":"u","pid":2,"tid":1,"ts":7000,"dur":500,"args":{"step":3}},{"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":1,"dur":2,"args":{"step":1}}],
"otherData":{"ranks":[{"rank":0,"clock_offset_us":0,"clock_error_us":0,"spans":1,"spans_left_out":0},{"rank":1,"clock_offset_us":0,"clock_error_us":0,"spans":2,"spans_left_out":0}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got = c.(tracks); len(got.rows) != 2 || got.rows[0].head != "rank 1" || got.rows[1].head != "" || got.rows[1].boxes[0].from != 2 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"", "# x\n\nnowhere y\n", "# x\n\nnn y\n"} {
		if _, err := gradient(bad); err == nil {
			t.Errorf("a gradient of %q", bad)
		}
	}
	for _, bad := range []string{"", "{}", `{"displayTimeUnit":"ms","traceEvents":[],"otherData":{"ranks":[]}}`} {
		if _, err := timeline(bad); err == nil {
			t.Errorf("a timeline of %q", bad)
		}
	}
	for _, bad := range []string{"", "\n| what | ratio | x |\n|---|---|---|\n| rows pulled per second from our tables | many | x |\n", "\n| what | ratio | x |\n|---|---|---|\n| rows pulled per second from our tables | 2 | x |\n",
		"\n| what | ratio | x |\n|---|---|---|\n| rows pulled per second from our tables | 2 to 1 | x |\n", "\n| what | ratio | x |\n|---|---|---|\n| rows pulled per second from our tables | 0 | x |\n"} {
		if _, err := ratios(bad); err == nil {
			t.Errorf("ratios of %q", bad)
		}
	}
}
