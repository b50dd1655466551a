package setting_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/setting"
)

// A setting of an earlier version is read by its new name, left out where its value changes nothing, and otherwise
// rejected with the remedy.
func TestCurrentReadsNamesOfEarlierVersions(t *testing.T) {
	for _, c := range []struct{ path, text, want string }{
		{"training.lr", "0.1", "training.lr=0.1"},
		{"training.lr-steps", "2:0.1", "training.lr-schedule=2:0.1"},
		{"training.lr-cosine", "true", "training.lr-schedule=cosine"},
		{"training.lr-cosine", "false", ""},
		{"training.lr-floor", "0", ""},
		{"training.lr-floor", "0.1", "training.lr-floor 0.1: the setting was removed: give training.lr-schedule=cosine:LR"},
		{"data.by-file", "true", "data.partition=files"},
		{"sync", "sum", "sync=aggregate"},
		{"job.slice", "100µs", ""},
		{"servers.fsync", "false", ""},
		{"training.patience", "0", ""},
		{"servers.restarts", "2", "job.max-restarts=2"},
		{"heter.max-restarts", "2", "job.max-restarts=2"},
		{"network.streams", "2", "network.streams 2: the setting was removed: leave it out, or set ringo.Network.Streams"},
		{"tuning.save-profile", "f", "tuning.save-profile f: the setting was removed: give tuning.tune with tuning.profile"},
		{"output.page", ":8080", "output.http=:8080"},
		{"output.metrics", ":9400", "output.http=0.0.0.0:9400"},
		{"output.metrics", "127.0.0.1:9400", "output.http=127.0.0.1:9400"},
		{"output.pprof", "", ""},
		{"job.slice", "1ms", "job.slice 1ms: the setting was removed: leave it out"},
		{"network.tls-ca", "ca.pem", "network.tls-ca ca.pem: the setting was removed: give all three files as network.tls"},
	} {
		now, note, exists, err := setting.Current(setting.Assignment{Path: setting.Path(c.path), Text: c.text})
		got := ""
		if err != nil {
			got = err.Error()
		} else if exists {
			got = string(now.Path) + "=" + now.Text
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) || (note == "") != (c.path == "training.lr") {
			t.Errorf("%s=%s: got %q with note %q, want %q", c.path, c.text, got, note, c.want)
		}
	}
}

// Values of an earlier version's checkpoint have the names of this version; a setting without replacement is an error
// where it changed something.
func TestCurrentValues(t *testing.T) {
	was := setting.Values{"training.lr": "1", "training.lr-steps": "", "training.lr-cosine": "true", "data.partition": "shuffled", "data.by-file": "true", "output.verbose": "false", "sync": "sum",
		"ps.fsync": "true", "ps.durability": "wal", "training.monitor": "loss", "training.patience": "3"}
	got, err := was.Current()
	if want := (setting.Values{"training.lr": "1", "training.lr-schedule": "cosine", "data.partition": "files", "sync": "aggregate",
		"ps.durability": "wal-fsync", "training.monitor": "loss:patience=3"}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	was["network.streams"] = "2" // changed no result
	if _, err := was.Current(); err != nil {
		t.Errorf("a setting without effect on results: %v", err)
	}
	was["data.interleave"] = "3"
	if _, err := was.Current(); err == nil || !strings.Contains(err.Error(), "data.interleave 3: the setting was removed: leave it out") {
		t.Errorf("%v", err)
	}
}

// TestJoinExtendsTheLastValue: a setting that is part of another one's value today extends that value, in any order,
// and alone is no valid value of it.
func TestJoinExtendsTheLastValue(t *testing.T) {
	for given, want := range map[string]string{
		"ps.durability=wal ps.fsync=true":                    "ps.durability=wal ps.durability=wal-fsync",
		"ps.fsync=true ps.durability=none ps.durability=wal": "ps.durability=none ps.durability=wal ps.durability=wal-fsync",
		"ps.fsync=false ps.durability=wal":                   "ps.durability=wal",
		"training.patience=3 training.best=auc":              "training.monitor=auc training.monitor=auc:patience=3",
		"network.tls-files=a,b,c":                            "network.tls=,a,b,c",
		"network.tls-files=a,b,c network.tls=on":             "network.tls=on network.tls=on,a,b,c",
		"training.patience=0 training.monitor=auc":           "training.monitor=auc",
		"ps.fsync=true training.lr=1":                        "training.lr=1 ps.durability=-fsync",
	} {
		var all []setting.Assignment
		for _, word := range strings.Fields(given) {
			path, text, _ := strings.Cut(word, "=")
			now, _, exists, err := setting.Current(setting.Assignment{Path: setting.Path(path), Text: text, Origin: "--set"})
			if err != nil {
				t.Fatal(err)
			}
			if exists {
				all = append(all, now)
			}
		}
		var got []string
		for _, a := range setting.Join(all) {
			got = append(got, string(a.Path)+"="+a.Text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %s", given, got, want)
		}
	}
}
