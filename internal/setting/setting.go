// Package setting describes a job's settings as rows of a table. A row has a setting's path, flag,
// unit, default, description, scope and condition, and is bound to a field of a Config. Flags,
// help, the reference page, job files, and comparisons between processes and with a checkpoint all
// use the rows.
//
// Each package defines the rows of its own Config, and errors name settings by path; only a command
// prints flags (Error.Text). A new setting is a field and a row.
package setting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// Path names a setting: hyphenated lower-case words, in groups separated by dots, such as
// "ps.durability".
type Path string

// Scope selects the processes that must agree on a setting.
type Scope uint8

const (
	// JobFixed settings affect the result or the messages between processes. They are equal on all
	// processes of a job and in a resumed run.
	JobFixed Scope = iota
	// JobMutable is JobFixed, except that a resumed run may change the value.
	JobMutable
	// PerProcess settings may differ between processes.
	PerProcess
)

// String returns the scope's name on the reference page.
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

// The commands. Train takes every setting. Server and Heter also accept other commands' settings,
// because they read the ranks' job file.
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

// Has reports whether c includes the command of.
func (c Commands) Has(of Commands) bool { return of == Train || c&of != 0 }

// String returns the names of the commands, as on the command line.
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

// Row is a setting.
type Row struct {
	Path Path
	// Flag is the command-line flag, without hyphens. Empty means a path only.
	Flag string
	// Unit is the unit of a number or the kind of a text: "steps", "DIR". Empty for
	// self-explanatory values, such as a choice.
	Unit string
	// About is a description in a sentence, without the default.
	About string
	Scope Scope
	// Commands are the commands other than train that take the setting.
	Commands Commands
	// OneStart reports whether the value applies to a single attempt, not to a resumed run.
	OneStart bool
	// Needs is the condition for an effect. nil means none.
	Needs Condition
	// Value is bound to the field. The field must hold the default when New is called.
	Value Value
}

// Origin is the source of a value: "--batch", "job.yaml:12". Empty means the default.
type Origin string

// Assignment sets a setting to a value, as text.
type Assignment struct {
	Path   Path   `json:"Path"`
	Text   string `json:"Text"`
	Origin Origin `json:"Origin"`

	appends bool // Text continues the value given before: see Join
}

// Table holds the settings of a configuration, in order.
type Table struct {
	rows     []Row
	at       map[Path]int
	defaults []string
	origins  []Origin
}

// New returns a table of rows. The rows' fields must hold the defaults. Duplicate paths or flags
// are an error.
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

// Rows returns the settings, in order.
func (t *Table) Rows() []Row { return slices.Clone(t.rows) }

// Row returns a setting, and whether it exists.
func (t *Table) Row(p Path) (r Row, known bool) {
	i, known := t.at[p]
	if known {
		r = t.rows[i]
	}
	return r, known
}

// Default returns a setting's default, as text.
func (t *Table) Default(p Path) string { return t.defaults[t.at[p]] }

// Origin returns the source of a setting's value. "" means the default.
func (t *Table) Origin(p Path) Origin {
	if i, known := t.at[p]; known {
		return t.origins[i]
	}
	return ""
}

// Get returns a setting's value as text, and whether the setting exists.
func (t *Table) Get(p Path) (text string, known bool) {
	i, known := t.at[p]
	if !known {
		return "", false
	}
	return t.rows[i].Value.String(), true
}

// Apply sets values in order: later values win. It sets all valid values and reports each unknown
// setting and invalid text.
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

// unknown returns the error of an unknown setting, with the nearest known paths.
func (t *Table) unknown(a Assignment) *Error {
	names := make([]string, len(t.rows))
	for i, r := range t.rows {
		names[i] = string(r.Path)
	}
	return &Error{Path: a.Path, Origin: a.Origin, format: "is no setting%s", args: []any{spelling.Hint(string(a.Path), names...)}}
}

// Idle reports every given setting without effect, with the unmet condition.
func (t *Table) Idle() ErrorList {
	return t.idle(func(i int) bool { return t.origins[i] != "" })
}

// Unused is Idle for a configuration that a program has filled: a row counts as given if no row of
// usual at the same index has the same value.
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
