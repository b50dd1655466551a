package blackbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// faulted returns the first error that a rank recorded in a bucket, with the errors of other ranks
// in the same bucket and step, or nil.
func (b *File) faulted() *Finding {
	type said struct {
		rank string
		Entry
	}
	var all []said
	for i := range b.Processes {
		for _, e := range b.Processes[i].Ended {
			if e.Kind == record.Fault.String() && e.Label != "" {
				all = append(all, said{b.Processes[i].Name, e})
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	first := slices.MinFunc(all, func(a, b said) int { return cmp.Compare(a.Begun, b.Begun) })
	f := &Finding{Fault: true, Operation: "fault", Bucket: first.Label, Step: first.Step}
	for _, s := range all {
		if s.Label == first.Label && s.Step == first.Step {
			f.Differ = append(f.Differ, OperationOf{Operation: s.Name, Ranks: []string{s.rank}})
		}
	}
	return f
}

func (f *Finding) fault() string {
	text := "fault in " + f.Bucket
	if f.Step >= 0 {
		text += fmt.Sprintf(", in step %d", f.Step+1)
	}
	var parts []string
	for _, d := range f.Differ {
		parts = append(parts, strings.Join(d.Ranks, ", ")+" found: "+d.Operation)
	}
	return text + ": " + strings.Join(parts, "; ")
}
