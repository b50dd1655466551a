// Package setting describes the settings of a job as rows of one table. A row names one field of a configuration:
// its path, flag, unit, default, one sentence, who must agree on it, and what it needs to have an effect. Flags, help,
// the reference page, job files, and the comparisons between processes and with a checkpoint all come from the rows.
//
// A package owns the rows of its own Config, beside it, and speaks of settings by their paths; only a command turns
// these into flags (Text). Adding a setting is one field and one row.
package setting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// Path names a setting: lower-case words joined by hyphens, in groups that dots separate, such as
// "ps.durability".
type Path string

// Scope says who must agree on a setting.
type Scope uint8

const (
	// JobFixed: it affects the result, or what processes send each other. All processes of a job
	// have the same value, and a resumed run has its checkpoint's.
	JobFixed Scope = iota
	// JobMutable: as JobFixed, but a resumed run may have another value than its checkpoint.
	JobMutable
	// PerProcess: each process may have a value of its own.
	PerProcess
)

// String is how the reference page calls it.
func (s Scope) String() string {
	switch s {
	case JobFixed:
		return "all processes, and a resumed run"
	case JobMutable:
		return "all processes"
	}
	return "this process"
}

// Commands is a set of commands that take a setting.
type Commands uint8

// The commands. Train takes every setting. Server and Heter also accept those of other commands,
// because the ranks' job file may hold them.
const (
	Run Commands = 1 << iota
	Eval
	Predict
	Bench // allreduce and collectives
	BenchStep
	Server
	Heter
	Train Commands = 0

	Ranks       = Eval | Predict | Bench | BenchStep // start ranks of ringo itself
	AllCommands = Ranks | Run | Server | Heter
)

// Has reports whether the command of is among c.
func (c Commands) Has(of Commands) bool { return of == Train || c&of != 0 }

// String lists the commands as users type them.
func (c Commands) String() string {
	names := []string{"train"}
	for i, name := range []string{"run", "eval", "predict", "bench allreduce, bench collectives", "bench step", "server", "heter"} {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// For adds commands to the rows of a group.
func For(c Commands, rows ...Row) []Row {
	for i := range rows {
		rows[i].Commands |= c
	}
	return rows
}

// Row is one setting.
type Row struct {
	Path Path
	// Flag is its flag on the command line, without hyphens; empty: it has a path alone.
	Flag string
	// Unit is what a number counts or a text names: "steps", "DIR". Empty where the value says it, such as a choice.
	Unit string
	// About is one sentence, without the default.
	About string
	Scope Scope
	// Commands are those besides train that take the setting.
	Commands Commands
	// OneStart reports whether the value holds for one start of the job: a resumed run does not
	// repeat it.
	OneStart bool
	// Needs is what must hold for the setting to have an effect; nil: nothing.
	Needs Condition
	// Value is bound to the field, which holds the default when the table is made.
	Value Value
}

// Origin is where a value was given: "--batch", "job.yaml:12". Empty: nowhere, it is the default.
type Origin string

// Assignment gives a setting a value, as text.
type Assignment struct {
	Path   Path
	Text   string
	Origin Origin
}

// Table is the settings of one configuration, in order.
type Table struct {
	rows     []Row
	at       map[Path]int
	defaults []string
	origins  []Origin
}

// New makes a table of rows whose fields hold their defaults. Two rows of one path or one flag are an error of the
// program.
func New(rows ...Row) (*Table, error) {
	t := &Table{rows: rows, at: make(map[Path]int, len(rows)), origins: make([]Origin, len(rows))}
	flags := map[string]Path{}
	for i, r := range rows {
		if _, twice := t.at[r.Path]; twice || r.Path == "" || r.Value == nil {
			return nil, fmt.Errorf("setting: row %d, %q: want a path of its own and a value", i, r.Path)
		}
		if other, twice := flags[r.Flag]; twice && r.Flag != "" {
			return nil, fmt.Errorf("setting: %q and %q have one flag, %q", other, r.Path, r.Flag)
		}
		t.at[r.Path], flags[r.Flag] = i, r.Path
		t.defaults = append(t.defaults, r.Value.String())
	}
	return t, nil
}

// Rows are the settings, in order.
func (t *Table) Rows() []Row { return slices.Clone(t.rows) }

// Row returns a setting, and whether there is such a one.
func (t *Table) Row(p Path) (r Row, known bool) {
	i, known := t.at[p]
	if known {
		r = t.rows[i]
	}
	return r, known
}

// Default is the text of a setting's value when the table was made.
func (t *Table) Default(p Path) string { return t.defaults[t.at[p]] }

// Origin is where a setting was given; "": it has its default.
func (t *Table) Origin(p Path) Origin {
	if i, known := t.at[p]; known {
		return t.origins[i]
	}
	return ""
}

// Get is the text of a setting's value, and whether there is such a setting.
func (t *Table) Get(p Path) (text string, known bool) {
	i, known := t.at[p]
	if !known {
		return "", false
	}
	return t.rows[i].Value.String(), true
}

// Apply sets values in order, so that later ones win, and reports every fault: unknown settings, and texts that are
// no values. The others are set.
func (t *Table) Apply(given ...Assignment) ErrorList {
	var faults ErrorList
	for _, a := range given {
		i, known := t.at[a.Path]
		if !known {
			faults = append(faults, t.unknown(a))
			continue
		}
		if err := t.rows[i].Value.Set(a.Text); err != nil {
			faults = append(faults, &Error{Path: a.Path, Origin: a.Origin, format: "%s: %w", args: []any{a.Text, err}})
			continue
		}
		t.origins[i] = a.Origin
	}
	return faults
}

// unknown is the fault of a setting that there is not, with the nearest that there is.
func (t *Table) unknown(a Assignment) *Error {
	names := make([]string, len(t.rows))
	for i, r := range t.rows {
		names[i] = string(r.Path)
	}
	return &Error{Path: a.Path, Origin: a.Origin, format: "is no setting%s", args: []any{spelling.Hint(string(a.Path), names...)}}
}

// Idle reports every setting that was given and has no effect, with what it needs.
func (t *Table) Idle() ErrorList {
	return t.idle(func(i int) bool { return t.origins[i] != "" })
}

// Unused reports what Table.Unused does, of a configuration that a program has filled: every row
// without effect whose value is not among its usual ones, those of other configurations' rows in
// the same order.
func Unused(rows []Row, usual ...[]Row) (ErrorList, error) {
	t, err := New(rows...)
	if err != nil {
		return nil, err
	}
	return t.idle(func(i int) bool {
		return !slices.ContainsFunc(usual, func(u []Row) bool { return i >= len(u) || u[i].Value.String() == t.defaults[i] })
	}), nil
}

func (t *Table) idle(given func(i int) bool) (faults ErrorList) {
	for i, r := range t.rows {
		if !given(i) || r.Needs == nil || r.Needs.holds(t.Get) {
			continue
		}
		format, args := failing(r.Needs, t.Get).describe()
		faults = append(faults, &Error{Path: r.Path, Origin: t.origins[i], format: "has no effect: it needs " + format, args: args})
	}
	return faults
}
