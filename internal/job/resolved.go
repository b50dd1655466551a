package job

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Resolved returns the assignments that reproduce the job's result: all settings, given or default,
// except those of one process or one start and those without effect. chosen are settings that the
// running job has selected; they replace the settings that requested a selection.
func (s *Spec) Resolved(t *setting.Table, chosen ...setting.Assignment) []setting.Assignment {
	var all []setting.Assignment
	for _, r := range t.Rows() {
		text, _ := t.Get(r.Path)
		if i := slices.IndexFunc(chosen, func(a setting.Assignment) bool { return a.Path == r.Path }); i >= 0 {
			if text = chosen[i].Text; text == t.Default(r.Path) {
				continue
			}
		} else if r.Scope == setting.PerProcess && t.Origin(r.Path) == "" || r.OneStart {
			continue
		}
		all = append(all, setting.Assignment{Path: r.Path, Text: text, Origin: "resolved"})
	}
	again, table, err := New(all...)
	if err != nil {
		return all // reading the assignments reports the error
	}
	idle := again.Unused(table)
	return slices.DeleteFunc(all, func(a setting.Assignment) bool {
		return slices.ContainsFunc(idle, func(f *setting.Error) bool { return f.Path == a.Path })
	})
}
