package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/setting"
)

// group is settings that belong together: a page of help, and a mapping in job files.
type group struct {
	name  string // what their paths begin with
	about string
	rows  []settingRow
}

// settingRow names a flag as a setting.
type settingRow struct {
	name  string // behind the group's
	flag  string
	scope setting.Scope
}

const (
	same       = setting.Result
	changeable = setting.Changeable
	local      = setting.Local
)

// trainGroups are all settings of `ringo train`, in the order of its help.
func trainGroups() []group {
	return []group{
		{"training", "how the model is trained", []settingRow{
			{"batch", "batch", same}, {"epochs", "epochs", changeable}, {"seed", "seed", same}, {"seeds", "seeds", same},
			{"optimizer", "optimizer", same}, {"lr", "lr", changeable}, {"lr-steps", "lr-steps", changeable}, {"lr-cosine", "lr-cosine", changeable},
			{"lr-floor", "lr-floor", changeable}, {"warmup", "warmup", changeable}, {"momentum", "momentum", same}, {"eps", "eps", same},
			{"weight-decay", "weight-decay", same}, {"dropout", "dropout", same}, {"clip-norm", "clip-norm", same},
			{"accumulate", "accumulate", same}, {"threads", "threads", local},
		}},
		{"data", "what it is trained on", []settingRow{
			{"dir", "data", local}, {"train-file", "train-file", local}, {"eval-file", "eval-file", local}, {"skip-bad", "skip-bad", same},
			{"train-limit", "train-limit", same}, {"eval-limit", "eval-limit", same}, {"table-rows", "table-rows", same},
			{"stream", "stream", same}, {"shuffle-window", "shuffle-window", same}, {"by-file", "by-file", same}, {"interleave", "interleave", same},
		}},
		{"checkpoint", "saving and resuming", []settingRow{
			{"dir", "checkpoint", local}, {"every", "every", changeable}, {"resume", "resume", local},
		}},
		{"job", "which ranks there are, and how they meet", []settingRow{
			{"ranks", "np", same}, {"rank", "rank", local}, {"rendezvous", "rendezvous", local}, {"transport", "transport", changeable},
			{"algorithm", "algorithm", same}, {"timeout", "timeout", changeable}, {"join-timeout", "join-timeout", changeable},
			{"heartbeat", "heartbeat", changeable}, {"dead-after", "dead-after", changeable}, {"slice", "slice", local},
		}},
		{"exchange", "what ranks exchange: strategies, compression, buckets", []settingRow{
			{"strategy", "strategy", same}, {"spars", "spars", same}, {"plan", "plan", same}, {"bucket-bytes", "bucket-bytes", same},
			{"dlgs-every", "dlgs-every", same}, {"dlgs-rule", "dlgs-rule", same}, {"layer-thresholds", "layer-thresholds", same},
			{"warmup-density", "warmup-density", same}, {"momentum-correction", "momentum-correction", same}, {"clip-value", "clip-value", same},
			{"partitions", "partitions", same}, {"sparse-algorithm", "sparse-algorithm", same}, {"bound-sum", "bound-sum", same}, {"update", "update", changeable},
		}},
		{"tuning", "choosing by what is measured", []settingRow{
			{"tune", "tune", same}, {"profile", "profile", local}, {"save-profile", "save-profile", local},
		}},
		{"servers", "parameter servers", []settingRow{
			{"mode", "mode", same}, {"count", "servers", same}, {"consistency", "ps-mode", same}, {"staleness", "staleness", same},
			{"geo-steps", "geo-steps", same}, {"values", "ps-values", same}, {"trainer-threads", "trainer-threads", same}, {"click", "ps-click", same},
			{"dir", "ps-dir", local}, {"memory", "ps-memory", local}, {"disk", "ps-disk", local}, {"store", "ps-store", local},
			{"durability", "durability", changeable}, {"fsync", "fsync", local}, {"save-every", "ps-save-every", local}, {"from", "ps-from", local},
			{"restarts", "ps-restarts", local}, {"lost", "ps-lost", changeable}, {"admit", "ps-admit", changeable}, {"unseen", "ps-unseen", changeable},
			{"shrink-every", "ps-shrink-every", changeable}, {"addresses", "ps-addrs", local}, {"http", "ps-http", local}, {"http-open", "ps-http-open", local},
		}},
		{"network", "connections between hosts", []settingRow{
			{"interface", "interface", local}, {"port-range", "port-range", local}, {"streams", "streams", changeable},
			{"congestion-control", "congestion-control", local}, {"checksum", "checksum", changeable},
		}},
		{"output", "what is told and written", []settingRow{
			{"json", "json", local}, {"progress", "progress", local}, {"layers", "layers", local}, {"trace", "trace", changeable}, {"trace-steps", "trace-steps", changeable},
			{"verbose", "verbose", local},
		}},
	}
}

// path is a setting's in full.
func (g group) path(r settingRow) setting.Path { return setting.Path(g.name + "." + r.name) }

// settingsOf is the table of the flags that groups name, bound to them, and of more.
func settingsOf(fs *pflag.FlagSet, groups []group, more ...setting.Row) (*setting.Table, error) {
	rows := more
	for _, g := range groups {
		for _, r := range g.rows {
			f := fs.Lookup(r.flag)
			if f == nil {
				return nil, fmt.Errorf("setting %s is flag --%s, which there is not", g.path(r), r.flag)
			}
			unit, about := pflag.UnquoteUsage(f)
			rows = append(rows, setting.Row{Path: g.path(r), Flag: r.flag, Unit: unit, About: about, Scope: r.scope, Value: flagValue{fs, f}})
		}
	}
	return setting.New(rows...)
}

// flagValue sets a flag as the command line does.
type flagValue struct {
	fs   *pflag.FlagSet
	flag *pflag.Flag
}

// kinds are what texts are to be, by the types of flags whose own errors are those of strconv.
var kinds = map[string]string{
	"int": "want a whole number", "uint": "want a whole number, 0 or more", "uint64": "want a whole number, 0 or more", "float64": "want a number",
	"bool": "want true or false", "duration": "want a time with its unit, such as 30s, 10m or 500ms",
}

// Set sets the flag, and says in a few words what else it wants.
func (v flagValue) Set(text string) error {
	err := v.fs.Set(v.flag.Name, text)
	if want, ok := kinds[v.flag.Value.Type()]; ok && err != nil {
		return errors.New(want)
	}
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		return invalid.Unwrap()
	}
	return err
}

// String is what Set reads.
func (v flagValue) String() string {
	if s, ok := v.flag.Value.(pflag.SliceValue); ok {
		return strings.Join(s.GetSlice(), ",")
	}
	return v.flag.Value.String()
}

// flagOf is a setting's flag, or its path where it has none.
func flagOf(p setting.Path) string {
	for _, g := range trainGroups() {
		for _, r := range g.rows {
			if g.path(r) == p {
				return "--" + r.flag
			}
		}
	}
	return string(p)
}
