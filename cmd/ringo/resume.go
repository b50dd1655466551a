package main

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/train"
)

// checkpointAssignments returns the settings that checkpoints store for a resumed run. Paths are
// absolute, because a resumed run may have another working directory.
func (g *commandSettings) checkpointAssignments() []setting.Assignment {
	out := g.asSaid(job.Overrides(g.table, func(r setting.Row) bool { return r.OneStart }))
	for i, a := range out {
		word := a.Path == "data.layout" && slices.Contains(layout.Names(), a.Text) || a.Path == "data.dir" && a.Text == data.Synthetic
		if r, _ := g.table.Row(a.Path); (r.Unit == "DIR" || r.Unit == "FILE") && a.Text != "" && !word && !remote.IsURL(a.Text) {
			if whole, err := filepath.Abs(a.Text); err == nil { // otherwise unchanged
				out[i].Text = whole
			}
		}
	}
	return out
}

// resumed replaces auto, the word of other launchers, by true: resume from the last checkpoint, if
// any.
func resumed(said []setting.Assignment) []setting.Assignment {
	for i, a := range said {
		if a.Path == "checkpoint.resume" && a.Text == "auto" {
			said[i].Text = "true"
		}
	}
	return said
}

// begunWith returns the settings of the run that this job resumes, or nil. The error names all
// settings that differ now and cannot change. For a launched rank, the result excludes the
// launcher's choices.
func (g *commandSettings) begunWith(said []setting.Assignment) ([]setting.Assignment, error) {
	dir, resume := "", false
	for _, a := range said {
		switch a.Path {
		case "checkpoint.dir":
			dir = a.Text
		case "checkpoint.resume":
			resume = a.Text == "true"
		}
	}
	if dir == "" || !resume {
		return nil, nil
	}
	before, err := train.FindPrevious(dir)
	if err != nil || before.File == "" {
		return nil, err
	}
	told := slices.DeleteFunc(before.Assignments, func(a setting.Assignment) bool {
		return g.worker && slices.Contains([]setting.Path{"job.ranks", "sync", "servers.count"}, a.Path)
	})
	for i := range told {
		told[i].Origin = setting.Origin("the checkpoint " + before.File)
	}
	now, table, err := job.New(slices.Concat(told, said)...)
	if now == nil || err != nil {
		return told, nil // the job reports all errors together
	}
	return told, errors.Join(otherBeginning(said, told, before.File), before.CheckChanges(now.Values(table, setting.JobFixed)))
}

// otherBeginning returns an error if a resumed run is given other initial weights than at first.
func otherBeginning(said, told []setting.Assignment, file string) error {
	const path setting.Path = "training.init-from"
	at := func(all []setting.Assignment) int {
		return slices.IndexFunc(all, func(a setting.Assignment) bool { return a.Path == path })
	}
	i, j := at(said), at(told)
	if i < 0 || said[i].Text == "" {
		return nil
	}
	was := "random values"
	if j >= 0 {
		was = told[j].Text
	}
	if whole, err := filepath.Abs(said[i].Text); err == nil && whole == was || said[i].Text == was {
		return nil
	}
	f := setting.Errorf(path, "%s: the run in %s was started with %s: remove the setting, or choose another folder for a new run", said[i].Text, file, was)
	f.Origin = said[i].Origin
	return f
}
