package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/blackboxcmd"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/job/jobfile"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/snapshot"
)

// commandSettings holds a command's settings. Flags win over --set, and --set wins over the job
// file. A launched process has the launcher's settings.
type commandSettings struct {
	command setting.Commands
	file    string
	set     []string
	flags   []setting.Assignment // command-line order
	notes   []string             // old names in use, with the new names
	renamed []setting.Assignment // settings given by old names, with the name as origin
	usual   []setting.Assignment // defaults that differ from the job's

	*job.Spec
	table          *setting.Table
	start          *job.Attempt // attempt of a job that saves its servers
	env            launch.RankEnv
	unused         map[setting.Path]bool // settings reported as without effect
	worker         bool                  // launched rank or aggregation server
	restarted      bool                  // the job continues after a loss
	snapshots      *snapshot.Memory      // memory for the job's snapshots, or nil
	lost           job.Losses            // losses before the present start
	checkpointPath string                // checkpoint or folder of a command that only reads

	ranks            bool            // external launchers may start the ranks
	starts           bool            // external launchers may start the command once per host, such as a pod
	part             *launch.RankEnv // first rank of this process if several start ranks; nil: this process starts all
	each             int             // ranks to start if part is set
	externalLauncher string          // name of the external launcher, with its variables
	remote           remoteFolders   // remote folders and files
	anyProgram       bool            // starts a user's program, which restores its settings itself
	predicts         bool            // ringo predict: the number of ranks is independent of the run
	serves           bool            // ringo serve: this process has all rows
	verbose          bool            // --verbose: plans, kernels, connections, starts and ends of processes
	quiet            bool            // launched by ringo train without --verbose
	colour           bool            // text lines have colours
}

// letters maps flags to single letters, as in other launchers.
var letters = map[string]string{"np": "n"} // never written

// register adds the command's flags. Flags of other commands that server and heter accept are
// hidden.
func (g *commandSettings) register(fs *pflag.FlagSet, command setting.Commands) {
	g.command = command
	g.ranks = g.accepts("job.rank") && command&(setting.Server|setting.Heter) == 0 // other launchers start ranks
	table := usualTable()
	for _, r := range table.Rows() {
		if r.Flag == "" || !g.accepts(r.Path) {
			continue
		}
		f := &pflag.Flag{Name: r.Flag, Shorthand: letters[r.Flag], Usage: r.About, DefValue: table.Default(r.Path), Hidden: !r.Commands.Has(command), Value: &settingFlag{given: g, row: r, text: table.Default(r.Path)}}
		if isBool(r) {
			f.NoOptDefVal = "true"
		}
		fs.AddFlag(f)
	}
	for path, names := range setting.Formers() {
		now, _, exists, _ := setting.Current(setting.Assignment{Path: path, Text: "true"})
		r, _ := table.Row(now.Path)
		for _, name := range names {
			if exists && !g.accepts(r.Path) {
				continue
			}
			f := fs.VarPF(&settingFlag{given: g, row: r, former: name, path: path}, name, "", r.About)
			f.Hidden = true
			if exists && (isBool(r) || now.Text != "true") {
				f.NoOptDefVal = "true"
			}
		}
	}
	fs.StringVar(&g.file, "job", "", "read settings from this job `FILE`, or from a built-in job file by its name (ringo jobs); flags override it")
	fs.StringArrayVar(&g.set, "set", nil, "`PATH=VALUE`: give any setting by its path, such as ps.durability=wal; may be repeated")
}

// accepts reports whether the command accepts a setting.
func (g *commandSettings) accepts(p setting.Path) bool {
	r, _ := usualTable().Row(p)
	return r.Commands.Has(g.command) || g.command&(setting.Server|setting.Heter) != 0
}

// usualTable returns the default settings of a job. A dozen commands read the table at every start,
// so it is created once.
var usualTable = sync.OnceValue(func() *setting.Table {
	_, table, err := job.New()
	if err != nil {
		panic(err) // duplicate rows: tests find them
	}
	return table
})

func isBool(r setting.Row) bool {
	return slices.Equal(setting.Known(r.Value), []string{"true", "false"})
}

// settingFlag is the flag of a setting. resolve validates all settings together.
type settingFlag struct {
	given  *commandSettings
	row    setting.Row
	text   string
	former string       // name in an earlier version, if given
	path   setting.Path // the setting's path in that version
}

// Set stores the value.
func (f *settingFlag) Set(text string) error {
	f.text = text
	a := setting.Assignment{Path: f.row.Path, Text: text, Origin: setting.Origin(flagOf(f.row.Path))}
	if f.former == "" {
		now, note, _, err := setting.Current(a)
		if note != "" {
			f.given.notes = append(f.given.notes, fmt.Sprintf("%s %s is %s %s", a.Origin, text, a.Origin, now.Text))
		}
		f.given.flags = append(f.given.flags, now)
		return err
	}
	a.Path = f.path
	a, _, exists, err := setting.Current(a)
	if err != nil {
		return err
	}
	f.given.notes = append(f.given.notes, "--"+f.former+" is "+flagOf(f.row.Path))
	if !exists {
		return nil
	}
	if err := f.given.rename(a, "--"+f.former); err != nil {
		return err
	}
	f.given.flags = append(f.given.flags, a)
	return nil
}

// String returns the value as given.
func (f *settingFlag) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// Words returns the values for completion.
func (f *settingFlag) Words() []string { return setting.Known(f.row.Value) }

// Type returns the kind of value in help texts.
func (f *settingFlag) Type() string {
	switch {
	case isBool(f.row):
		return "bool"
	case f.row.Unit != "":
		return f.row.Unit
	case setting.Known(f.row.Value) != nil:
		return "word"
	}
	return "value"
}

// resolve creates the job from all sources, and the command line's model, if any. In rising
// precedence: the launcher, the resumed run, the job file, --set, flags.
func (g *commandSettings) resolve(cmd *cobra.Command, model string) error {
	g.env, g.worker, _ = launch.RankFromEnv(os.LookupEnv) // joining the job reports errors
	told, err := g.launched()
	if err != nil {
		return err
	}
	all := told.Settings
	g.remote.urls = told.URLs
	g.lost = told.Lost
	g.quiet = told.Command == "ringo train" && !told.Verbose
	g.colour = told.Colour || told.Command == "" && hasColours(cmd.OutOrStdout(), os.LookupEnv)
	if told.Command == cmd.CommandPath() {
		all, g.start = append(g.usual, all...), told.Start
	} else if all, err = g.gather(cmd, told, model); errors.As(err, new(*checkpoint.DamageError)) {
		return err
	} else if err != nil {
		return cli.Usage(err)
	}
	if notes := g.notes; len(notes) > 0 && !g.worker {
		slices.Sort(notes)
		fmt.Fprintf(cmd.ErrOrStderr(), "ringo: names of earlier versions, accepted until 1.0: %s\n", strings.Join(slices.Compact(notes), "; "))
	}
	if err := g.brought(cmd, all); err != nil {
		return g.faults(err)
	}
	g.Spec, g.table, err = job.New(all...)
	if err != nil && g.Spec == nil {
		return err
	}
	return g.faults(err)
}

// launched returns the launcher's spec, empty without a launcher.
func (g *commandSettings) launched() (told job.LaunchSpec, err error) {
	text, there := launch.JobSpecFromEnv(os.LookupEnv)
	if there {
		told, err = job.ParseLaunched(text)
	}
	return told, err
}

// gather returns all settings of the command line. Settings of another command's launcher come
// first, without origin: they count as not given.
func (g *commandSettings) gather(cmd *cobra.Command, told job.LaunchSpec, model string) (all []setting.Assignment, err error) {
	usual := func(path setting.Path, text string) {
		all = append(all, setting.Assignment{Path: path, Text: text})
	}
	for _, a := range append(g.usual, told.Settings...) {
		usual(a.Path, a.Text)
	}
	if g.start = told.Start; g.worker && g.env.WorldSize > 0 { // otherwise joining the job reports the error
		usual("job.ranks", strconv.Itoa(g.env.WorldSize))
		if n := max(g.env.Servers, len(g.env.Tables)); n > 0 {
			usual("servers.count", strconv.Itoa(n))
		}
		if g.env.Servers > 0 {
			usual("sync", string(job.Aggregate))
		}
	}
	said, err := g.read()
	if err != nil {
		return nil, err
	}
	if model != "" {
		said = append(said, setting.Assignment{Path: "model", Text: model, Origin: "the command line"})
	}
	if said, err = g.hosted(resumed(setting.Join(append(said, g.flags...)))); err != nil {
		return nil, err
	}
	placed, err := g.externalSettings(said)
	if err != nil {
		return nil, err
	}
	if err := g.spooled(cmd, said, placed); err != nil {
		return nil, err
	}
	if g.checkpointPath != "" {
		before, err := g.reading(said)
		return slices.Concat(before, all, said, placed), err
	}
	if g.anyProgram {
		return slices.Concat(all, said, placed), nil
	}
	before, err := g.begunWith(said)
	return slices.Concat(all, before, said, placed), err
}

// read returns the settings of the job file, then of --set.
func (g *commandSettings) read() (out []setting.Assignment, err error) {
	if g.file != "" {
		if out, err = readJob(g.file); err != nil {
			return nil, err
		}
	}
	for _, text := range g.set {
		path, value, ok := strings.Cut(text, "=")
		if !ok || path == "" {
			return nil, fmt.Errorf("--set %q: want PATH=VALUE, such as training.batch=32", text)
		}
		out = append(out, setting.Assignment{Path: setting.Path(path), Text: value, Origin: bySet})
	}
	out, err = g.current(out)
	for _, a := range out {
		if _, known := usualTable().Get(a.Path); known && !g.accepts(a.Path) {
			return nil, fmt.Errorf("%s: %s has no effect on this command", a.Origin, a.Path)
		}
	}
	return out, err
}

// current translates assignments to this version's names, and records old names for the user.
func (g *commandSettings) current(all []setting.Assignment) (out []setting.Assignment, err error) {
	for _, a := range all {
		now, note, exists, fault := setting.Current(a)
		if exists {
			out = append(out, now)
		}
		if note != "" {
			g.notes = append(g.notes, note)
			if exists {
				err = errors.Join(err, g.rename(now, string(a.Path)))
			}
		}
		if fault != nil {
			err = errors.Join(err, errors.New(g.faultText(fault.(*setting.Error))))
		}
	}
	return out, err
}

// rename records a setting that was given by an old name. Two old names of a setting must have
// equal values.
func (g *commandSettings) rename(a setting.Assignment, former string) error {
	for _, b := range g.renamed {
		if b.Path == a.Path && b.Text != a.Text && string(b.Origin) != former {
			return fmt.Errorf("%s: %s with %s %s: both are %s now, which has one value: give that", former, a.Text, b.Origin, b.Text, flagOf(a.Path))
		}
	}
	a.Origin = setting.Origin(former)
	g.renamed = append(g.renamed, a)
	return nil
}

// readJob reads the preset of this name, or else a job file.
func readJob(name string) ([]setting.Assignment, error) {
	if text, ok := job.Preset(name); ok {
		return jobfile.Read(name, strings.NewReader(text))
	}
	f, err := pathname.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--job: %w; `ringo jobs` lists the built-in job files", err)
	}
	defer f.Close()
	return jobfile.Read(name, f)
}

// bySet is the origin of values of --set.
const bySet setting.Origin = "--set"

// faults formats errors of settings for the user, with the file and line of the value, or the flag.
func (g *commandSettings) faults(err error) error {
	var errs []error
	for _, line := range setting.Format(err, g.faultText) {
		if line != "" {
			errs = append(errs, errors.New(line))
		}
	}
	return cli.Usage(errors.Join(errs...))
}

func (g *commandSettings) faultText(f *setting.Error) string {
	if g.unused[f.Path] {
		return "" // already reported as without effect
	}
	origin := f.Origin
	if origin == "" && g.table != nil {
		origin = g.table.Origin(f.Path)
	}
	return f.Text(func(p setting.Path) string {
		switch {
		case p != f.Path:
			return g.name(p)
		case origin == bySet:
			return "--set " + string(p)
		case inFile(origin):
			return string(origin) + ": " + string(p)
		}
		return g.name(p)
	})
}

// name returns a setting's name for the user: the path if a file gives the value, else the flag, if
// any.
func (g *commandSettings) name(p setting.Path) string {
	if g.table != nil && inFile(g.table.Origin(p)) {
		return string(p)
	}
	return flagOf(p)
}

// inFile reports whether a value comes from a line of a file.
func inFile(o setting.Origin) bool { return strings.Contains(string(o), ":") }

// flagOf returns a setting's flag, or the path without a flag.
func flagOf(p setting.Path) string {
	if r, _ := usualTable().Row(p); r.Flag != "" {
		return "--" + r.Flag
	}
	return string(p)
}

func (g *commandSettings) idleFaults() error {
	faults := g.Unused(g.table)
	err := g.faults(faults.Err())
	g.unused = map[setting.Path]bool{}
	for _, f := range faults {
		g.unused[f.Path] = true
	}
	return err
}

// isGiven reports whether a setting was given, not left at the default.
func (g *commandSettings) isGiven(p setting.Path) bool { return g.table.Origin(p) != "" }

// handed returns the launch spec of the job's processes.
func (g *commandSettings) handed(cmd *cobra.Command, progress string) (string, error) {
	said := job.Overrides(g.table, nil)
	if g.Hosts != "" { // other hosts download files themselves
		said = g.asSaidOf(said, readElsewhere)
	}
	decided := func(path setting.Path, text string) {
		said = append(said, setting.Assignment{Path: path, Text: text, Origin: "the launcher"})
	}
	switch {
	case g.Hosts != "": // each rank counts its host's cores
	case g.part != nil && g.Train.Threads == 0:
		decided("training.threads", strconv.Itoa(max(1, placement.Usable()/g.each)))
	default:
		decided("training.threads", strconv.Itoa(g.Threads()))
	}
	decided("output.progress", progress)
	if g.restarted {
		decided("job.ranks", strconv.Itoa(g.Ranks))
		decided("checkpoint.resume", "true")
	}
	return job.LaunchSpec{Command: cmd.CommandPath(), Settings: said, Start: g.start, Lost: g.lost, URLs: g.remote.urls, Verbose: g.verbose, Colour: g.colour && g.Output.LogDir == ""}.Text()
}

// blackBox returns the folder of records that explain a failed job; "" for none.
func (g *commandSettings) blackBox() (string, error) {
	switch at := g.Output.BlackBox; at {
	case "none":
		return "", nil
	case "":
		return blackboxcmd.Folder()
	default:
		if info, err := os.Stat(at); err != nil || !info.IsDir() {
			return "", setting.Errorf("output.black-box", "%s: want a folder that exists, or none", at)
		}
		return at, nil
	}
}
