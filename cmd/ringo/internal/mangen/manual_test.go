package mangen

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

// style is a value with words.
type style string

func (s *style) Set(text string) error { *s = style(text); return nil }
func (s *style) String() string        { return string(*s) }
func (s *style) Type() string          { return "style" }
func (s *style) Words() []string       { return []string{"plain", "bar"} }

// program has a command of every kind.
func program() *cobra.Command {
	run := func(*cobra.Command, []string) error { return nil }
	root := &cobra.Command{Use: "prog", Short: "Does it"}
	train := &cobra.Command{Use: "train MODEL", Short: "Train", Long: "Trains it.\n.this is no request\n'nor this: a\\b-c…", Example: "  prog train x", RunE: run}
	train.Flags().StringP("out", "o", "", "`DIR` for it")
	train.Flags().String("json", "x.json", "a `FILE`")
	train.Flags().Int("np", 1, "number of `ranks`")
	train.Flags().Var(new(style), "style", "how")
	train.Flags().Bool("secret", false, "not told")
	_ = train.Flags().MarkHidden("secret")
	kind := "a"
	cli.Choice(train, &kind, "kind", "which", "a", "b")
	group := cli.Group(&cobra.Command{Use: "group", Short: "Several"},
		&cobra.Command{Use: "show DIR", Short: "Show", RunE: run}, &cobra.Command{Use: "read FILE...", Short: "Read", RunE: run}, &cobra.Command{Use: "now", Short: "Now", RunE: run})
	root.AddCommand(train, group, &cobra.Command{Use: "guard", Hidden: true, RunE: run}, &cobra.Command{Use: "run --np N -- PROGRAM", Short: "Run", RunE: run}, Completion(), Man("1.2", Section{"train", "MODELS", "  mlp"}))
	root.InitDefaultHelpCmd()
	Complete(root, map[string][]string{"MODEL": {"mlp", "gpt"}})
	return root
}

// What completion offers is what values are, and files only where they are wanted.
func TestComplete(t *testing.T) {
	const nothing, files, folders = ":4\n", ":0\n", ":16\n"
	for line, want := range map[string]string{
		"train ''":         "mlp\ngpt\n" + nothing,
		"train mlp ''":     nothing,
		"train --out ''":   folders,
		"train --json ''":  files,
		"train --np ''":    nothing,
		"train --style ''": "plain\nbar\n" + nothing,
		"train --kind ''":  "a\nb\n" + nothing,
		"group ''":         "now\tNow\nread\tRead\nshow\tShow\n" + nothing,
		"group show ''":    folders,
		"group show x ''":  nothing,
		"group read x ''":  files,
		"group now ''":     nothing,
		"run -- ''":        files,
		"completion ''":    "bash\nzsh\nfish\n" + nothing,
		"help group ''":    "now\tNow\nread\tRead\nshow\tShow\n" + nothing,
		"help train ''":    nothing,
	} {
		if _, out, _ := commandtest.Run(program(), "__complete "+line); out != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
}

// The scripts are whole: a shell that is here reads them.
func TestCompletion(t *testing.T) {
	for shell, holds := range map[string]string{"bash": "complete -o default", "zsh": "#compdef prog", "fish": "complete -c prog"} {
		status, out, errs := commandtest.Run(program(), "completion "+shell)
		if status != 0 || errs != "" || !strings.Contains(out, holds) {
			t.Errorf("%s: status %d, %s%.100s", shell, status, errs, out)
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		check := exec.Command(shell, "-n")
		check.Stdin = strings.NewReader(out)
		if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s -n: %v, %s", shell, err, said)
		}
	}
	commandtest.Refused(t, program(), cli.UsageError, "completion", "wants the name of a shell, bash, zsh or fish, got []")
	commandtest.Refused(t, program(), cli.UsageError, "completion tcsh", `got ["tcsh"]`)
}

// In bash, words are completed, without the package bash-completion, too, and wherever a = stands.
func TestCompletionInBash(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	_, script, _ := commandtest.Run(program(), "completion bash")
	dir := t.TempDir()
	// The program answers with the word that is asked for behind some that it knows.
	answers := "#!/bin/sh\nfor last; do :; done\necho \"mlp\nmnist\n<$last>\n:4\"\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "prog"), []byte(answers), 0o777), os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o666),
		os.Mkdir(filepath.Join(dir, "folder"), 0o777)); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"prog train ''":         "mlp mnist <>",
		"prog train m":          "mlp mnist",
		"prog train mn":         "mnist",
		"prog train --np = m":   "mlp mnist",
		"prog train --np = ''":  "mlp mnist <--np=>",
		"prog train a : b = mn": "",
	} {
		line := "source ./script; compopt() { :; }; COMP_TYPE=9; COMP_WORDS=(" + words + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); __start_prog; echo \"${COMPREPLY[*]}\"; " +
			"cur=fol; _filedir -d; echo \"${COMPREPLY[*]}\""
		shell := exec.Command("bash", "--norc", "-c", line)
		shell.Dir, shell.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		out, err := shell.CombinedOutput()
		if got := strings.Split(string(out), "\n"); err != nil || got[0] != want || got[1] != "folder" {
			t.Errorf("%s: %q, %v, want %q", words, out, err, want)
		}
	}
}

// Each command that is seen has a page with all its flags.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "man1")
	root := program()
	if status, out, errs := commandtest.Run(root, "man "+dir); status != 0 || out != "" || errs != "" {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, cmd := range all(root) {
		if cmd.Name() == "help" {
			continue
		}
		pages++
		text, err := os.ReadFile(filepath.Join(dir, path(cmd, "-")+".1"))
		if err != nil {
			t.Fatal(err)
		}
		plain := strings.ReplaceAll(string(text), `\-`, "-")
		commandtest.Holds(t, cmd.Name(), plain, ".SH NAME\n"+path(cmd, "-")+" - "+cmd.Short, ".SH EXIT STATUS")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(plain, `\fB--`+f.Name+`\fR`) == f.Hidden {
				t.Errorf("%s: --%s is hidden: %v", cmd.Name(), f.Name, f.Hidden)
			}
		})
	}
	if len(left) != pages || pages != 9 {
		t.Errorf("%d pages of %d commands: %v", len(left), pages, left)
	}
	const want = `.TH PROG\-TRAIN 1 "" "1.2" "Ringo"
.SH NAME
prog\-train \- Train
.SH SYNOPSIS
.B prog train MODEL
[\fIflags\fR]
.SH DESCRIPTION
.nf
Trains it.
\&.this is no request
\&'nor this: a\eb\-c\[u2026]
.fi
.SH OPTIONS
.TP
\fB\-h\fR, \fB\-\-help\fR
help for train
.TP
\fB\-\-json\fR \fIFILE\fR
a FILE (default x.json)
.TP
\fB\-\-kind\fR \fIstring\fR
which (default a)
.TP
\fB\-\-np\fR \fIranks\fR
number of ranks (default 1)
.TP
\fB\-o\fR, \fB\-\-out\fR \fIDIR\fR
DIR for it
.TP
\fB\-\-style\fR \fIstyle\fR
how
.SH MODELS
.nf
  mlp
.fi
.SH EXAMPLES
.nf
  prog train x
.fi
.SH EXIT STATUS
0 for success, 2 for a fault of the command line, 128 and its number for a signal, else 1.
.SH SEE ALSO
.BR prog (1)
`
	text, err := os.ReadFile(filepath.Join(dir, "prog-train.1"))
	if err != nil || string(text) != want {
		t.Errorf("%v\n%swant\n%s", err, text, want)
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		check := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", filepath.Join(dir, "prog-train.1"))
		if said, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(said)) > 0 {
			t.Errorf("groff: %v, %s", err, said)
		}
	}
	commandtest.Refused(t, program(), cli.UsageError, "man", "needs a folder")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	commandtest.Refused(t, program(), cli.Failed, "man "+file, "not a directory")
}
