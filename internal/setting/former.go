package setting

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// former is a setting of an earlier version. The old names remain accepted until 1.0.
type former struct {
	path  Path              // path in that version
	flag  string            // flags in that version, if they have changed, with spaces between
	now   Path              // path of the replacement; empty if removed
	words map[string]string // new names of values; "" means the new setting's default
	host  string            // HOST of an address without a host
	adds  string            // text to append to now's value today, with {} for this value
	usual []string          // values without replacement that equal today's behaviour
	same  bool              // no value changes results: a resumed run ignores its checkpoint's
	hint  string            // remedy for the other values
}

const tlsHint = "give all three files as network.tls=auto,CA,CERT,KEY"

// formers returns all earlier settings. Every command looks up all of them at its start, so the
// list is created once.
var formers = sync.OnceValue(func() []former { return append(renamed(), removed()...) })

// renamed returns the settings with another name today.
func renamed() []former {
	off := map[string]string{"": "", "0": "", "false": ""}
	return []former{
		{path: "sync", now: "sync", words: map[string]string{"sum": "aggregate"}},
		{path: "servers.addresses", flag: "ps-addrs", now: "ps.addresses"},
		{path: "servers.dir", now: "ps.dir"},
		{path: "servers.memory", now: "ps.memory"},
		{path: "servers.disk", now: "ps.disk"},
		{path: "ps.max-restarts", now: "job.max-restarts"},
		{path: "heter.max-restarts", now: "job.max-restarts"},
		{path: "servers.fsync", now: "ps.durability", adds: "-fsync", words: off},
		{path: "ps.fsync", now: "ps.durability", adds: "-fsync", words: off},
		{path: "network.tls-files", now: "network.tls", adds: ",{}", words: off},
		{path: "training.patience", now: "training.monitor", adds: ":patience={}", words: off},
		{path: "servers.click", now: "ps.click"},
		{path: "servers.durability", flag: "durability", now: "ps.durability"},
		{path: "servers.staleness", now: "ps.staleness"},
		{path: "servers.geo-steps", now: "ps.geo-steps"},
		{path: "servers.trainer-threads", now: "ps.trainer-threads"},
		{path: "servers.shrink-every", now: "ps.shrink-every"},
		{path: "servers.lost", flag: "ps-lost", now: "ps.failure-policy", words: map[string]string{"end": "fail", "go-on": "continue"}},
		{path: "servers.values", now: "ps.wire-dtype"},
		{path: "heter.values", now: "heter.wire-dtype"},
		{path: "servers.unseen", now: "ps.delete-after-unseen-days"},
		{path: "servers.admit", now: "ps.admission"},
		{path: "servers.restarts", now: "job.max-restarts"},
		{path: "heter.restarts", now: "job.max-restarts"},
		{path: "servers.from", now: "ps.init-from"},
		{path: "servers.cache", now: "ps.row-cache"},
		{path: "servers.save-every", now: "ps.checkpoint-every"},
		{path: "job.dead-after", flag: "dead-after", now: "job.heartbeat-timeout"},
		{path: "job.algorithm", flag: "algorithm", now: "job.collective-algorithm"},
		{path: "output.layers", now: "output.layer-stats"},
		{path: "exchange.bound-sum", now: "exchange.limit-sum"},
		{path: "training.best", now: "training.monitor"},
		{path: "training.rates", now: "training.lr-multipliers"},
		{path: "training.table-rules", now: "training.table-optimizers"},
		{path: "data.skip-bad", now: "data.max-bad-records"},
		{path: "data.split", flag: "split", now: "data.eval-split"},
		{path: "data.layout", flag: "schema", now: "data.layout"},
		{path: "data.partition", flag: "partition", now: "data.partition"},
		{path: "job.bind", flag: "bind", now: "job.bind"},
		{path: "network.port-range", flag: "port-range", now: "network.port-range"},
		{path: "checkpoint.every", flag: "every", now: "checkpoint.every"},
		{path: "tuning.profile", flag: "profile", now: "tuning.profile"},
		{path: "data.by-file", now: "data.partition", words: map[string]string{"true": "files", "false": ""}},
		{path: "training.lr-steps", flag: "lr-steps", now: "training.lr-schedule"},
		{path: "training.lr-cosine", flag: "lr-cosine", now: "training.lr-schedule", words: map[string]string{"true": "cosine", "false": ""}},
		{path: "output.page", flag: "page", now: "output.http", words: map[string]string{"": ""}},
		{path: "output.metrics", flag: "metrics", now: "output.http", words: map[string]string{"": ""}, host: "0.0.0.0"},
		{path: "output.pprof", now: "output.http", words: map[string]string{"": ""}},
		{path: "servers.http", flag: "ps-http", now: "output.http", words: map[string]string{"": ""}},
		{path: "heter.device", now: "heter.device", words: map[string]string{"": "cpu", "auto": "cpu"}},
	}
}

// removed returns the settings without a successor, and the remedies.
func removed() []former {
	return []former{
		{path: "network.checksum", usual: []string{"", "false"}, same: true, hint: "leave it out, or set ringo.Network.Checksum in a program"},
		{path: "network.streams", usual: []string{"", "0", "1"}, same: true, hint: "leave it out, or set ringo.Network.Streams in a program"},
		{path: "exchange.update", usual: []string{""}, same: true, hint: "leave it out, or set distopt.Config.Update in a program"},
		{path: "job.heartbeat", usual: []string{"1s"}, same: true, hint: "leave it out: it is a tenth of job.heartbeat-timeout, and 1s at most"},
		{path: "job.heartbeat-interval", usual: []string{"1s"}, same: true, hint: "leave it out: it is a tenth of job.heartbeat-timeout, and 1s at most"},
		{path: "output.trace-steps", usual: []string{"", "200"}, hint: "leave it out: the first 200 steps are recorded"},
		{path: "tuning.save-profile", flag: "save-profile save-cost-profile", usual: []string{""}, hint: "give tuning.tune with tuning.profile, which names the file"},
		{path: "exchange.sparse-algorithm", usual: []string{""}, hint: "leave it out, or set distopt.Config.SparseAlgorithm in a program"},
		{path: "data.interleave", usual: []string{"0", "1"}, hint: "leave it out, or set train.Config.Interleave in a program"},
		{path: "training.auc-window", usual: []string{"0", "1000000"}, hint: "leave it out, or set train.Config.AUCWindow in a program"},
		{path: "training.lr-floor", usual: []string{"0"}, hint: "give training.lr-schedule=cosine:LR, with the rate at the end"},
		{path: "job.slice", usual: []string{"100µs", "100us"}, hint: "leave it out: slices are 100µs"},
		{path: "network.congestion-control", usual: []string{""}, hint: "set the host's (sysctl net.ipv4.tcp_congestion_control), or ringo.Network.CongestionControl in a program"},
		{path: "network.lending", usual: []string{"", "measured"}, hint: "leave it out, or set ringo.Network.ZeroCopy in a program"},
		{path: "network.tls-ca", usual: []string{""}, hint: tlsHint},
		{path: "network.tls-cert", usual: []string{""}, hint: tlsHint},
		{path: "network.tls-key", usual: []string{""}, hint: tlsHint},
		{path: "output.verbose", usual: []string{"false"}, hint: "leave it out: servers report connections that return, and their HTTP address reports all"},
		{path: "servers.http-open", usual: []string{"", "false", "true"}, hint: "leave it out: the HOST of output.http decides, and /stats needs the token"},
	}
}

// Harmless reports whether a setting was removed and none of its values changed results.
func Harmless(p Path) bool {
	return slices.ContainsFunc(formers(), func(f former) bool { return f.path == p && f.same })
}

// Current returns an assignment with this version's names, a note for the user if a name of the
// setting or of its value changed, and whether the setting remains given. A removed setting is an
// error unless its value equals today's behaviour.
func Current(a Assignment) (now Assignment, note string, exists bool, err error) {
	i := slices.IndexFunc(formers(), func(f former) bool {
		_, word := f.words[a.Text]
		return f.path == a.Path && (f.now != a.Path || word)
	})
	if i < 0 {
		return a, "", true, nil
	}
	f := formers()[i]
	if f.now == "" {
		if !slices.Contains(f.usual, a.Text) {
			err = &Error{Path: a.Path, Origin: a.Origin, format: "%s: the setting was removed: " + f.hint, args: []any{a.Text}}
		}
		return a, fmt.Sprintf("%s was removed: %s", a.Path, f.hint), false, err
	}
	a.Path = f.now
	if strings.HasPrefix(a.Text, ":") {
		a.Text = f.host + a.Text
	}
	word, renamed := f.words[a.Text]
	switch {
	case f.adds != "":
		note = fmt.Sprintf("%s is a part of %s", f.path, f.now)
	case f.now == f.path:
		note = fmt.Sprintf("%s %s is %s %s", f.path, a.Text, f.now, word)
	default:
		note = fmt.Sprintf("%s is %s", f.path, f.now)
	}
	if renamed {
		a.Text = word
	} else if f.adds != "" {
		a.Text, a.appends = strings.ReplaceAll(f.adds, "{}", a.Text), true
	}
	return a, note, !renamed || word != "", nil
}

// Formers returns the flags of earlier versions by their paths; none if the flag is unchanged.
func Formers() map[Path][]string {
	flags := map[Path][]string{}
	for _, f := range formers() {
		flags[f.path] = strings.Fields(f.flag)
	}
	return flags
}

// Current returns values with this version's names, without removed settings. The error names
// removed settings with values other than today's behaviour.
func (v Values) Current() (Values, error) {
	if v == nil {
		return nil, nil
	}
	out, added, faults := Values{}, []Assignment(nil), ErrorList(nil)
	for _, p := range slices.Sorted(maps.Keys(v)) {
		a, _, exists, err := Current(Assignment{Path: p, Text: v[p]})
		if err != nil && !Harmless(p) {
			faults = append(faults, err.(*Error))
		} else if a.appends {
			added = append(added, a)
		} else if exists && (out[a.Path] == "" || a.Path != p && a.Text != "") {
			out[a.Path] = a.Text
		}
	}
	for _, a := range added {
		out[a.Path] += a.Text
	}
	return out, faults.Err()
}

// Join applies assignments that Current has marked with appends: the text of each is appended to
// the last value of the same setting in all.
func Join(all []Assignment) (out []Assignment) {
	added := []Assignment(nil)
	for _, a := range all {
		if a.appends {
			added = append(added, a)
		} else {
			out = append(out, a)
		}
	}
	for _, a := range added {
		for _, b := range slices.Backward(out) {
			if b.Path == a.Path {
				a.Text = b.Text + a.Text
				break
			}
		}
		out = append(out, Assignment{Path: a.Path, Text: a.Text, Origin: a.Origin})
	}
	return out
}
