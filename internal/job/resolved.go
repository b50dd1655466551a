package job

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Resolved is all that this job has decided, so that a job of these assignments alone has the same result: given or not, but
// for what is of one process, one start or has no effect. chosen are settings that were chosen while it ran, in the place
// of those that said so.
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
		return all // reading it will say why
	}
	idle := again.Unused(table)
	return slices.DeleteFunc(all, func(a setting.Assignment) bool {
		return slices.ContainsFunc(idle, func(f *setting.Error) bool { return f.Path == a.Path })
	})
}
