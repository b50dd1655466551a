package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/remotepath"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

// remoteFolders is what a job has elsewhere than on this host.
type remoteFolders struct {
	spools map[setting.Path]*remotepath.Spool
	urls   map[string]string // what was said, by the path that stands for it here
	below  string            // what names of this process's files begin with, where others save to the same place
}

// savedElsewhere are settings that name a folder in which a job saves, readElsewhere those of what it reads.
var (
	savedElsewhere = []setting.Path{"checkpoint.dir", "ps.dir"}                                                            // never written
	readElsewhere  = []setting.Path{"data.dir", "data.train-file", "data.eval-file", "training.init-from", "ps.init-from"} // never written
)

// spooled has URLs of folders in which the job saves be folders of this host, and brings there what it goes on with.
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
		spool, err := remotepath.Open(cmd.Context(), a.Text, g.remote.below, want, g.tellsOfAway(cmd))
		var held *remotepath.HeldError
		if errors.As(err, &held) {
			return setting.Errorf(a.Path, "%v: go on with it (%v), name another folder, or remove its checkpoints", held, setting.Path("checkpoint.resume"))
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

// standsFor notes what a path of this host stands for, and returns the path.
func (g *commandSettings) standsFor(url, path string) string {
	if g.remote.urls == nil {
		g.remote.urls = map[string]string{}
	}
	g.remote.urls[path] = url
	return path
}

// lastOf is the last assignment of each setting, which counts.
func lastOf(all []setting.Assignment) map[setting.Path]setting.Assignment {
	out := map[setting.Path]setting.Assignment{}
	for _, a := range all {
		out[a.Path] = a
	}
	return out
}

// hostedElsewhere reports a job whose processes that save would be on hosts that carry nothing.
func hostedElsewhere(a setting.Assignment, list string) error {
	found, err := hosts.Parse(list)
	if list == "" || err != nil || len(found) == 0 {
		return nil // what is wrong is told with all other faults
	}
	if a.Path == "ps.dir" || !isHere(found[0].Name) {
		return setting.Errorf(a.Path, "%s: it is this host that carries what is saved, and it would be saved on others: start the job on the first host of %v, without servers that keep parameters, or name a folder that all hosts have", remote.Shown(a.Text), setting.Path("job.hosts"))
	}
	return nil
}

// tellsOfAway tells a person.
func (g *commandSettings) tellsOfAway(cmd *cobra.Command) func(line string) {
	return func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
}

// brought has URLs of what the job reads be paths of this host, and brings it there, unless settings have faults that can be told before.
func (g *commandSettings) brought(cmd *cobra.Command, all []setting.Assignment) error {
	last, checked := lastOf(all), false
	for i, a := range all {
		if !slices.Contains(readElsewhere, a.Path) || !remote.IsURL(a.Text) || last[a.Path] != a {
			continue
		}
		if !checked {
			if _, _, err := job.New(all...); err != nil {
				return nil // whoever goes on meets it
			}
			checked = true
		}
		path, err := remotepath.Data(cmd.Context(), a.Text, g.tellsOfAway(cmd))
		if err != nil {
			return setting.Errorf(a.Path, "%w", err)
		}
		all[i].Text = g.standsFor(a.Text, path)
	}
	return nil
}

// asSaid are settings with what was said, in place of paths of this host that stand for it.
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

// awayFault reports what cannot be kept elsewhere.
func (g *commandSettings) awayFault() error {
	if g.remote.spools["ps.dir"] != nil && g.ParameterServer.Durability == engine.WAL {
		return setting.Errorf("ps.durability", "wal with a %v that lies elsewhere: a change is on a disk before it is acknowledged, and checkpoints alone are carried: say checkpoint, or name a folder", setting.Path("ps.dir"))
	}
	if g.remote.spools["checkpoint.dir"] != nil && g.Hosts != "" && g.Sync.UsesParameterServers() {
		return setting.Errorf("checkpoint.dir", "servers on other hosts would save there what this host has to carry: name a folder that all hosts have")
	}
	return nil
}

// carried is do, after which all that was saved is where it belongs, or the error says what is not.
func (g *commandSettings) carried(do func() error) error {
	err := do()
	for _, s := range g.remote.spools {
		if fault := s.Close(); fault != nil {
			if err != nil {
				fault = fmt.Errorf("%w; before: %v", fault, err) // the job may have been told to end, and to be started again: not with this
			}
			err = fault
		}
	}
	return err
}

// withCheckpoint is do with the checkpoint that the first word names here, and not elsewhere.
func withCheckpoint(cmd *cobra.Command, words []string, do func(*cobra.Command, []string) error) error {
	path, end, err := checkpointHere(cmd.Context(), words[0])
	if err != nil {
		return err
	}
	return errors.Join(do(cmd, append([]string{path}, words[1:]...)), end())
}

// readsCheckpoint is a command that is given a checkpoint, which may lie elsewhere.
func readsCheckpoint(cmd *cobra.Command) *cobra.Command {
	do := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, words []string) error { return withCheckpoint(cmd, words, do) }
	return cmd
}

// withServerCheckpoint is the group of commands about what servers have saved, which may lie
// elsewhere for those that only read it.
func withServerCheckpoint(group *cobra.Command) *cobra.Command {
	for _, cmd := range group.Commands() {
		do, changes := cmd.RunE, cmd.Name() == "recover"
		cmd.RunE = func(cmd *cobra.Command, words []string) error {
			switch {
			case !remote.IsURL(words[0]):
				return do(cmd, words)
			case changes:
				return usagef("`%s` changes the folder, and %s lies elsewhere: bring it here, and name the folder", cmd.CommandPath(), remote.Shown(words[0]))
			}
			path, err := remotepath.Data(cmd.Context(), words[0], func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) })
			if err != nil {
				return err
			}
			return do(cmd, []string{path})
		}
	}
	return group
}

// checkpointHere brings a checkpoint that a command reads to this host, where word is a URL.
func checkpointHere(ctx context.Context, word string) (path string, end func() error, err error) {
	return remotepath.Checkpoint(ctx, word, func(file string) (string, error) {
		f, err := checkpoint.Load(file)
		if err != nil {
			return "", err
		}
		part, err := train.ServerParts(f.Header, "") // its servers' folders are not here yet
		if err = errors.Join(err, f.Close()); err != nil || part == nil {
			return "", err
		}
		return strings.TrimPrefix(train.AttemptDir("", part.Start), "/") + "/", nil
	})
}
