package hosts

import (
	"reflect"
	"strings"
	"testing"
)

// Lists and files say the same, and what is wrong is told with the line.
func TestParse(t *testing.T) {
	for list, want := range map[string]string{
		"a":                      "a:1",
		"a:4,b:4":                "a:4,b:4",
		"a,a,b:2, a:3":           "a:5,b:2",
		"me@10.0.0.1:2,[::1]:3":  "me@10.0.0.1:2,[::1]:3",
		"[fe80::1%eth0]":         "[fe80::1%eth0]:1",
		"":                       `!host ""`,
		"a:0":                    `!"0" ranks: want 1 to 1024`,
		"a:x":                    `!"x" ranks`,
		"a:1000,a:1000":          "!2000 ranks",
		"-oProxyCommand=x":       "!want a name or address",
		"a;rm":                   "!want a name or address",
		"a:":                     `!"" ranks`,
		"[::1]2":                 "!",
		"a,,b":                   `!host ""`,
		strings.Repeat("a", 300): strings.Repeat("a", 300) + ":1",
	} {
		hosts, err := Parse(list)
		check(t, list, hosts, err, want)
	}
	for file, want := range map[string]string{
		"a:2\nb slots=2\n":                       "a:2,b:2",
		"# all\n\n  a   slots=2 max_slots=4 # x": "a:2",
		"a\na\nb:3 #":                            "a:2,b:3",
		"#":                                      "!no host",
		"a\nb slots=two":                         `!line 2: b: "two" ranks`,
		"a\n\nb cores=2":                         `!line 3: b: "cores=2" is not known: want slots=N`,
	} {
		hosts, err := ParseFile(file)
		check(t, file, hosts, err, want)
	}
}

func check(t *testing.T, text string, hosts []Host, err error, want string) {
	t.Helper()
	fault, wrong := strings.CutPrefix(want, "!")
	switch {
	case wrong && (err == nil || !strings.Contains(err.Error(), fault)):
		t.Errorf("%q: %v, %v, want %q", text, hosts, err, fault)
	case !wrong && (err != nil || String(hosts) != want):
		t.Errorf("%q: %v, %v, want %q", text, String(hosts), err, want)
	}
}

// Ranks fill a host before the next, and servers are dealt in turn.
func TestPlaces(t *testing.T) {
	hosts := []Host{{"a", 3}, {"b", 1}, {"c", 2}}
	if n := Slots(hosts); n != 6 {
		t.Error(n)
	}
	for n, want := range map[int][]int{0: nil, 2: {0, 0}, 5: {0, 0, 0, 1, 2}, 6: {0, 0, 0, 1, 2, 2}} {
		if got := Fill(hosts, n); !reflect.DeepEqual(got, want) {
			t.Errorf("Fill %d: %v, want %v", n, got, want)
		}
	}
	for n, want := range map[int][]int{0: nil, 2: {0, 1}, 5: {0, 1, 2, 0, 2}, 7: {0, 1, 2, 0, 2, 0, 0}} {
		if got := Deal(hosts, n); !reflect.DeepEqual(got, want) {
			t.Errorf("Deal %d: %v, want %v", n, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a:4,b:4", "[::1]:2", "a slots=2 # x\nb:3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) ([]Host, error){Parse, ParseFile} {
			hosts, err := parse(text)
			if err != nil {
				continue
			}
			again, err := Parse(String(hosts))
			if err != nil || !reflect.DeepEqual(again, hosts) {
				t.Fatalf("%q: %v, again %v, %v", text, hosts, again, err)
			}
		}
	})
}
