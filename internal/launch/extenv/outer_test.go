package extenv

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Each environment of testdata/places.txt gives the place that stands below it, or the error.
func TestPlaces(t *testing.T) {
	text, err := os.ReadFile("testdata/places.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(string(text), "\n== ")[1:]
	for _, c := range all {
		name, rest, _ := strings.Cut(c, "\n")
		env, want, _ := strings.Cut("\n"+rest, "\n-> ")
		t.Run(name, func(t *testing.T) { check(t, env, strings.TrimRight(want, "\n")) })
	}
	if len(all) < 30 {
		t.Errorf("%d environments are left", len(all))
	}
}

func check(t *testing.T, env, want string) {
	h, vars := Host{}, map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(env), "\n") {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "host":
			h.Hostname = value
		case "names":
			h.Names = strings.Fields(value)
		default:
			vars[name] = value
		}
	}
	h.Lookup = func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	place, found, err := Find(h)
	want, who, told := strings.Cut(want, "\n   ")
	got := tell(place, found, err)
	if strings.HasPrefix(want, "error: ") {
		got = fmt.Sprint("error: ", err)
	}
	if got != want || told && place.String() != who {
		t.Errorf("got\n%s\n   %v\nwant\n%s\n   %s", got, place, want, who)
	}
	// Whatever of them is missing, a place is whole or an error says so.
	for name, value := range vars {
		delete(vars, name)
		if p, found, err := Find(h); found && err == nil && (p.Rank < 0 || p.Size > 0 && p.Rank >= p.Size || p.Each < 1 || p.LocalSize > 0 && p.LocalRank >= p.LocalSize) {
			t.Errorf("without %s: %+v", name, p)
		}
		vars[name] = value
	}
}

func tell(p Assignment, found bool, err error) string {
	switch {
	case err != nil:
		return "error " + err.Error()
	case !found:
		return "none"
	}
	out, size := "", "unknown"
	if p.Size > 0 {
		size = fmt.Sprint(p.Size)
	}
	out = fmt.Sprintf("rank %d of %s", p.Rank, size)
	if p.LocalSize > 0 {
		out += fmt.Sprintf(", local %d of %d", p.LocalRank, p.LocalSize)
	}
	if p.Each > 1 {
		out += fmt.Sprintf(", starts %d", p.Each)
	}
	if p.Address != "" {
		out += ", meets at " + p.Address
	}
	if p.Job != "" {
		out += fmt.Sprintf(", job %q", p.Job)
	}
	if p.Parent != "" {
		out += ", below " + p.Parent
	}
	return out
}

func TestNodes(t *testing.T) {
	for text, want := range map[string]string{
		"a":                       "a",
		"node[001,007-010],b2":    "node001 node007 node008 node009 node010 b2",
		"r[1-2]n[08-10]":          "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10",
		"n[9-11].x,m":             "n9.x n10.x n11.x m",
		"n[1":                     "want a list",
		"n1]":                     "want a list",
		"n[2-1]":                  "want a list",
		"n[]":                     "want a list",
		"n[a-b]":                  "want a list",
		"n[[1]]":                  "want a list",
		"a,,b":                    "want a list",
		"":                        "want a list",
		"n[1-999999999]":          "more than",
		"n[1-9999][1-9999][1-99]": "more than",
		"n[1-60000],m[1-60000]":   "more than",
	} {
		got, err := nodeNames(text)
		if told := fmt.Sprint(strings.Join(got, " "), err); !strings.Contains(told, want) || (err == nil) != (strings.Join(got, " ") == want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestCounts(t *testing.T) {
	for text, want := range map[string]string{
		"2(x3),1": "[2 2 2 1]", "4": "[4]", "1,2": "[1 2]",
		"": "want numbers", "2(x3": "want numbers", "2(x0)": "want numbers", "x": "want numbers", "-1": "want numbers", "2(x)": "want numbers", "1(x99999999)": "more than",
	} {
		got, err := taskCounts(text)
		if told := fmt.Sprint(got, err); !strings.Contains(told, want) || (err == nil) != (fmt.Sprint(got) == want) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

func FuzzNodes(f *testing.F) {
	f.Add("node[001,007-015],b2")
	f.Add("r[1-2]n[8-10]x,2(x3),1")
	f.Fuzz(func(t *testing.T, text string) {
		if names, err := nodeNames(text); err == nil && (len(names) == 0 || len(names) > maxNodes) {
			t.Errorf("%q: %d names", text, len(names))
		}
		if counts, err := taskCounts(text); err == nil && (len(counts) == 0 || len(counts) > maxNodes) {
			t.Errorf("%q: %d counts", text, len(counts))
		}
	})
}
