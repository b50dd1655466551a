package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/train"
)

// notOfRun are flags that a run which goes on does not take from its checkpoint: what they say is of this start, of this
// machine, or of how a run begins.
var notOfRun = []string{
	"checkpoint", "resume", "job", "set", "json", "trace", "save-profile", "progress", "verbose", "help",
	"threads", "rank", "rendezvous", "ps-addrs", "ps-start", "ps-from",
} // never written

// ofPlace are flags that a launcher has decided for its ranks.
var ofPlace = []string{"np", "mode", "servers"} // never written

// tellAll is what checkpoints keep of the command line for a later start. Paths are whole: that start may have another
// working directory.
func tellAll(cmd *cobra.Command) (map[string]string, error) {
	told := map[string]string{}
	var fault error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := flagText(f)
		if oneOf(f.Name, "data", "train-file", "eval-file", "profile") && value != "" && value != data.Synthetic {
			whole, err := filepath.Abs(value)
			if err != nil {
				fault = fmt.Errorf("--%s: %w", f.Name, err)
			}
			value = whole
		}
		if !oneOf(f.Name, notOfRun...) {
			told[f.Name] = value
		}
	})
	return told, fault
}

// takeOver makes a run that goes on as it was begun: what is not given is as the checkpoint was told. What is given and cannot
// change is an error that names all of it. Of a rank that a launcher has started, it leaves that launcher's choices alone.
func takeOver(cmd *cobra.Command, model string) error {
	fs := cmd.Flags()
	if resume, err := fs.GetBool("resume"); err != nil || !resume || fs.Lookup("checkpoint").Value.String() == "" {
		return err
	}
	before, err := train.FindPrevious(fs.Lookup("checkpoint").Value.String())
	if err != nil {
		return err
	}
	given := map[string]string{}
	fs.Visit(func(f *pflag.Flag) {
		if _, told := before.Told[f.Name]; told || flagText(f) != f.DefValue {
			given[f.Name] = flagText(f)
		}
	})
	if err := before.Refuse(model, given); err != nil {
		return err
	}
	_, launched, _ := launch.FromEnv(os.LookupEnv)
	for _, name := range slices.Sorted(maps.Keys(before.Told)) {
		if fs.Changed(name) || oneOf(name, notOfRun...) || launched && oneOf(name, ofPlace...) {
			continue
		}
		if err := fs.Set(name, before.Told[name]); err != nil {
			return fmt.Errorf("%s was begun with --%s %s, which this program does not take: %w", before.File, name, before.Told[name], err)
		}
	}
	return nil
}
