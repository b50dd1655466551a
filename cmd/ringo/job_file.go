package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/jobfile"
	"github.com/ringo-ml/ringo/setting"
)

// jobSettings gives settings in other ways than by their flags: a job file, and --set. Flags win over --set, and
// that over the file.
type jobSettings struct {
	file string
	set  []string
}

func (j *jobSettings) register(fs *pflag.FlagSet) {
	fs.StringVar(&j.file, "job", "", "read settings from this `FILE`, YAML by the paths that ringo help train lists; flags win over it")
	fs.StringArrayVar(&j.set, "set", nil, "`PATH=VALUE`: give one setting by its path, such as servers.durability=wal; may be repeated")
}

// apply sets what the file and --set say, but for what flags say already, and returns the model that they or the command
// line's words name.
func (j *jobSettings) apply(cmd *cobra.Command, groups []group, words []string) (model []string, err error) {
	given, err := j.read()
	if err != nil {
		return nil, err
	}
	name := ""
	table, err := settingsOf(cmd.Flags(), groups, setting.Row{Path: "model", About: "what is trained", Value: setting.Text(&name)})
	if err != nil {
		return nil, err
	}
	byFlag := map[setting.Path]bool{"model": len(words) > 0}
	for _, r := range table.Rows() {
		if r.Flag != "" {
			byFlag[r.Path] = cmd.Flags().Changed(r.Flag)
		}
	}
	var wins []setting.Assignment
	for _, a := range given {
		if !byFlag[a.Path] {
			wins = append(wins, a)
		}
	}
	if faults := table.Apply(wins...); len(faults) > 0 {
		return nil, located(faults)
	}
	if name != "" {
		return []string{name}, nil
	}
	return words, nil
}

// read is all that the file and --set give, in this order.
func (j *jobSettings) read() (given []setting.Assignment, err error) {
	if j.file != "" {
		f, err := pathname.Open(j.file)
		if err != nil {
			return nil, fmt.Errorf("--job: %w", err)
		}
		defer f.Close()
		if given, err = jobfile.Read(j.file, f); err != nil {
			return nil, err
		}
	}
	for _, text := range j.set {
		path, value, ok := strings.Cut(text, "=")
		if !ok || path == "" {
			return nil, fmt.Errorf("--set %q: want PATH=VALUE, such as training.batch=32", text)
		}
		given = append(given, setting.Assignment{Path: setting.Path(path), Text: value, Origin: "--set"})
	}
	return given, nil
}

// located are faults with where they are in a file.
func located(faults setting.Faults) error {
	var errs []error
	for _, f := range faults {
		errs = append(errs, fmt.Errorf("%s: %s", f.Origin, f))
	}
	return errors.Join(errs...)
}
