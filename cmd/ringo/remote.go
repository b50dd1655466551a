package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/remotepath"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

// remoteFolders holds the remote folders and files of a job.
type remoteFolders struct {
	spools map[setting.Path]*remotepath.Spool
	urls   map[string]string // URLs as given, by local path
	below  string            // prefix of this process's files in a shared remote folder
}

// savedElsewhere are settings of folders that a job writes, readElsewhere settings of its inputs.
var (
	savedElsewhere = []setting.Path{"checkpoint.dir", "ps.dir"}                                                            // never written
	readElsewhere  = []setting.Path{"data.dir", "data.train-file", "data.eval-file", "training.init-from", "ps.init-from"} // never written
)

// spooled replaces URLs of folders that the job writes by local folders, and downloads the files of
// a resumed run.
func (g *commandSettings) spooled(cmd *cobra.Command, said, placed []setting.Assignment) error {
	last := lastOf(slices.Concat(said, placed))
	for i, a := range said {
		if !slices.Contains(savedElsewhere, a.Path) || !remote.IsURL(a.Text) || last[a.Path] != a {
			continue
		}
		want := remotepath.Write
		rank, _ := strconv.Atoi(last["job.rank"].Text)
		switch {
		case g.worker:
			rank = g.env.Rank
		case g.part != nil:
			rank = g.part.Rank
		}
		if rank > 0 {
			want = remotepath.Look
		} else if last["checkpoint.resume"].Text == "true" || a.Path == "ps.dir" {
			want = remotepath.Resume
		}
		if err := hostedElsewhere(a, last["job.hosts"].Text); err != nil {
			return err
		}
		spool, err := remotepath.Open(cmd.Context(), a.Text, g.remote.below, want, tells(cmd))
		var held *remotepath.HeldError
		if errors.As(err, &held) {
			return setting.Errorf(a.Path, "%v: resume it (%v), choose another folder, or remove the checkpoints", held, setting.Path("checkpoint.resume"))
		}
		if err != nil {
			return setting.Errorf(a.Path, "%w", err)
		}
		if g.remote.spools == nil {
			g.remote.spools = map[setting.Path]*remotepath.Spool{}
		}
		g.remote.spools[a.Path] = spool
		said[i].Text = g.standsFor(a.Text, spool.Dir)
	}
	return nil
}

// standsFor records the URL of a local path, and returns the path.
func (g *commandSettings) standsFor(url, path string) string {
	if g.remote.urls == nil {
		g.remote.urls = map[string]string{}
	}
	g.remote.urls[path] = url
	return path
}

// lastOf returns the effective assignment of each setting: the last.
func lastOf(all []setting.Assignment) map[setting.Path]setting.Assignment {
	out := map[setting.Path]setting.Assignment{}
	for _, a := range all {
		out[a.Path] = a
	}
	return out
}

// hostedElsewhere reports a job that would save on other hosts, because only this host uploads
// files.
func hostedElsewhere(a setting.Assignment, list string) error {
	found, err := hosts.Parse(list)
	if list == "" || err != nil || len(found) == 0 {
		return nil // the job reports all errors together
	}
	if a.Path == "ps.dir" || !isHere(found[0].Name) {
		return setting.Errorf(a.Path, "%s: it is this host that carries what is saved, and it would be saved on others: start the job on the first host of %v, without servers that keep parameters, or name a folder that all hosts have", remote.Shown(a.Text), setting.Path("job.hosts"))
	}
	return nil
}

// tells returns a function that prints a line to stderr.
func tells(cmd *cobra.Command) func(line string) {
	return func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
}

// brought replaces URLs of the job's inputs by local paths and downloads the files, unless the
// settings are invalid.
func (g *commandSettings) brought(cmd *cobra.Command, all []setting.Assignment) error {
	last, checked := lastOf(all), false
	for i, a := range all {
		if !slices.Contains(readElsewhere, a.Path) || !remote.IsURL(a.Text) || last[a.Path] != a {
			continue
		}
		if !checked {
			if _, _, err := job.New(all...); err != nil {
				return nil // the caller reports the error
			}
			checked = true
		}
		path, err := remotepath.Data(cmd.Context(), a.Text, tells(cmd))
		if err != nil {
			return setting.Errorf(a.Path, "%w", err)
		}
		all[i].Text = g.standsFor(a.Text, path)
	}
	return nil
}

// asSaid replaces local paths by the URLs that were given.
func (g *commandSettings) asSaid(all []setting.Assignment) []setting.Assignment {
	return g.asSaidOf(all, slices.Concat(savedElsewhere, readElsewhere))
}

func (g *commandSettings) asSaidOf(all []setting.Assignment, paths []setting.Path) []setting.Assignment {
	for i, a := range all {
		if url, ok := g.remote.urls[a.Text]; ok && slices.Contains(paths, a.Path) {
			all[i].Text = url
		}
	}
	return all
}

// awayFault reports settings that are invalid with remote folders.
func (g *commandSettings) awayFault() error {
	if g.remote.spools["ps.dir"] != nil && g.ParameterServer.Durability.Logged() {
		return setting.Errorf("ps.durability", "%s with a %v that lies elsewhere: a change is on a disk before it is acknowledged, and checkpoints alone are carried: say checkpoint, or name a folder", g.ParameterServer.Durability, setting.Path("ps.dir"))
	}
	if g.remote.spools["checkpoint.dir"] != nil && g.Hosts != "" && g.Sync.UsesParameterServers() {
		return setting.Errorf("checkpoint.dir", "servers on other hosts would save there what this host has to carry: name a folder that all hosts have")
	}
	return nil
}

// carried runs do, then waits for all uploads and returns their errors.
func (g *commandSettings) carried(do func() error) error {
	err := do()
	for _, s := range g.remote.spools {
		if fault := s.Close(); fault != nil {
			if err != nil {
				fault = fmt.Errorf("%w; before: %v", fault, err) // %v hides a requested stop: without the upload the job must not be restarted
			}
			err = fault
		}
	}
	return err
}

// withCheckpoint runs do with the first word, a checkpoint's folder or URL, replaced by a local
// file, and prints the choice among a folder's checkpoints. Ranks receive the file.
func withCheckpoint(cmd *cobra.Command, words []string, do func(*cobra.Command, []string) error) error {
	path, end, err := checkpointHere(cmd.Context(), words[0])
	if err != nil {
		return err
	}
	file, why, err := checkpoint.Choose(path)
	if errors.Is(err, checkpoint.ErrNone) {
		file, err = path, nil // do reports the error
	}
	if why != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "ringo: %s: taking %s, %s\n", remote.Shown(words[0]), filepath.Base(file), why)
	}
	if err == nil {
		err = do(cmd, append([]string{file}, words[1:]...))
	}
	return errors.Join(err, end())
}

// readsCheckpoint lets a command accept the URL of a checkpoint.
func readsCheckpoint(cmd *cobra.Command) *cobra.Command {
	do := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, words []string) error { return withCheckpoint(cmd, words, do) }
	return cmd
}

// withServerCheckpoint lets commands that only read servers' checkpoints accept a URL.
func withServerCheckpoint(group *cobra.Command) *cobra.Command {
	for _, cmd := range group.Commands() {
		do, changes := cmd.RunE, cmd.Name() == "recover"
		cmd.RunE = func(cmd *cobra.Command, words []string) error {
			switch {
			case !remote.IsURL(words[0]):
				return do(cmd, words)
			case changes:
				return cli.Usagef("`%s` changes the folder, and %s lies elsewhere: bring it here, and name the folder", cmd.CommandPath(), remote.Shown(words[0]))
			}
			path, err := remotepath.Data(cmd.Context(), words[0], tells(cmd))
			if err != nil {
				return err
			}
			return do(cmd, []string{path})
		}
	}
	return group
}

// checkpointHere returns the local path of a checkpoint, and downloads the checkpoint if word is a
// URL.
func checkpointHere(ctx context.Context, word string) (path string, end func() error, err error) {
	return remotepath.Checkpoint(ctx, word, func(file string) (string, error) {
		f, err := checkpoint.Load(file)
		if err != nil {
			return "", err
		}
		part, err := train.ServerParts(f.Header, "") // the servers' folders are not downloaded yet
		if err = errors.Join(err, f.Close()); err != nil || part == nil {
			return "", err
		}
		return strings.TrimPrefix(train.AttemptDir("", part.Start), "/") + "/", nil
	})
}
