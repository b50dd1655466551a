package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/setting"
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
func tellAll(cmd *cobra.Command) (told []setting.Assignment, err error) {
	table, err := settingsOf(cmd.Flags(), trainGroups())
	if err != nil {
		return nil, err
	}
	for _, r := range table.Rows() {
		if !cmd.Flags().Changed(r.Flag) || oneOf(r.Flag, notOfRun...) {
			continue
		}
		value := r.Value.String()
		if oneOf(r.Flag, "data", "train-file", "eval-file", "profile") && value != "" && value != data.Synthetic {
			if value, err = filepath.Abs(value); err != nil {
				return nil, fmt.Errorf("--%s: %w", r.Flag, err)
			}
		}
		told = append(told, setting.Assignment{Path: r.Path, Text: value, Origin: setting.Origin("--" + r.Flag)})
	}
	return told, nil
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
	table, err := settingsOf(fs, trainGroups())
	if err != nil {
		return err
	}
	now, err := valuesNow(cmd, model, before.Told)
	if err != nil {
		return err
	}
	if err := before.Refuse(now); err != nil {
		return err
	}
	_, launched, _ := launch.FromEnv(os.LookupEnv)
	flags := map[setting.Path]string{}
	for _, r := range table.Rows() {
		flags[r.Path] = r.Flag
	}
	for _, a := range before.Told {
		if name := flags[a.Path]; fs.Changed(name) || oneOf(name, notOfRun...) || launched && oneOf(name, ofPlace...) {
			continue
		}
		if err := table.Apply(a).Err(); err != nil {
			return fmt.Errorf("%s was begun with %s %s, which this program does not take: %w", before.File, a.Path, a.Text, err)
		}
	}
	return nil
}

// valuesNow are the settings of a run's training: the model's own, over them what it was begun with, and what flags say now.
func valuesNow(cmd *cobra.Command, model string, told []setting.Assignment) (setting.Values, error) {
	said, err := tellAll(cmd)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(told, said)
	cfg, sync := train.Defaults(model, ""), map[setting.Path]string{"servers.mode": modeCollective, "servers.consistency": psSum}
	for _, a := range all {
		if sync[a.Path] != "" {
			sync[a.Path] = a.Text
		}
		if a.Path == "training.optimizer" {
			cfg.SetOptimizer(a.Text)
		}
	}
	table, err := setting.New(cfg.Settings()...)
	if err != nil {
		return nil, err
	}
	table.Apply(all...) // its faults are found again with those of all flags
	v := table.Values(setting.Result)
	if v["model"] = model; sync["servers.mode"] == modeCollective {
		v["sync"] = "allreduce"
	} else if v["sync"] = sync["servers.consistency"]; v["sync"] == "sync" {
		v["sync"] = "bsp"
	}
	if spec, err := models.Lookup(model); err == nil {
		v["model"] = spec.Name
	}
	return v, nil
}
