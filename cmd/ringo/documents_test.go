package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/collectives"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/steps"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// documents are README.md and those in docs, by name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	out := map[string]string{}
	for _, name := range append(names, filepath.Join("..", "..", "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	if err != nil || len(out) < 5 {
		t.Fatalf("%d documents, %v", len(out), err)
	}
	return out
}

// blocks are the indented blocks of a document, without their indentation.
func blocks(text string) (out []string) {
	var block []string
	for line := range strings.Lines(text + "\nend\n") {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			block = append(block, code)
			continue
		}
		if len(block) > 0 {
			out = append(out, strings.Join(block, ""))
		}
		block = nil
	}
	return out
}

var (
	commandLine = regexp.MustCompile(`^(?:go run \./cmd/)?ringo (.*)$`)
	jobText     = regexp.MustCompile(`^[a-z]+:( |\n)`)
)

// Every command line of README.md and docs is one that ringo takes: its settings make a job without a fault, and what takes
// no time is run. Every job file there makes one, too, and every schema is one. A run that goes on has the settings of the line before it.
func TestCommandsOfDocumentsAreTaken(t *testing.T) {
	texts := documents(t)
	t.Chdir(t.TempDir())
	lines, files, schemas := 0, 0, 0
	for name, text := range texts {
		for _, block := range blocks(text) {
			if jobText.MatchString(block) {
				files++
				if err := os.WriteFile("job.yaml", []byte(block), 0o666); err != nil {
					t.Fatal(err)
				}
				if err := taken(words("train --job job.yaml")); err != nil {
					t.Errorf("%s: the job file\n%s: %v", name, block, err)
				}
			}
			if schema, ok := strings.CutPrefix(block, "# my.yaml\n"); ok {
				schemas++
				if _, err := layout.Read("my.yaml", strings.NewReader(schema)); err != nil {
					t.Errorf("%s: the schema\n%s: %v", name, block, err)
				}
			}
			var before []string
			for line := range strings.Lines(block) {
				m := commandLine.FindStringSubmatch(strings.TrimSpace(line))
				if m == nil {
					continue
				}
				lines++
				code, _, _ := strings.Cut(m[1], " #")
				args := words(code)
				if slices.Contains(args, "--resume") {
					args = append(before, args[2:]...)
				}
				if err := taken(args); err != nil {
					t.Errorf("%s: %s: %v", name, m[0], err)
				}
				before = args
			}
		}
	}
	if lines < 30 || files == 0 || schemas == 0 {
		t.Errorf("%d command lines, %d job files and %d schemas were found: are they looked for where they are?", lines, files, schemas)
	}
}

// Lines that are not taken are found.
func TestTaken(t *testing.T) {
	for line, want := range map[string]string{
		"train mnist --data synthetic --np 2": "", "bench step mnist --np 2": "", "jobs mnist-ps": "",
		"train mnist --zzz": "--zzz", "train mnist --data synthetic --staleness 4": "has no effect", "train nothing": "nothing",
		"run --np 2": "needs a program", "run --np 2 --sync bsp -- x": "needs parameter servers", "server --index 4 --np 2 --servers 2 --rendezvous x:1": "--index 4",
		"bench step mnist --strategy zzz": "zzz", "jobs zzz": "zzz", "ps show": "one folder", "bench ps --zzz": "--zzz",
	} {
		if err := taken(words(line)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// inBucket is where a bucket's files would be, for commands that are not to reach one.
var inBucket = regexp.MustCompile(`'?s3:/(/[^'?]*)(\?[^']*)?'?`)

// taken says what is wrong with a command line. It starts no processes, and reaches no other host.
func taken(args []string) error {
	args = asWeWrite(args)
	for i, a := range args {
		args[i] = inBucket.ReplaceAllString(a, "$1")
	}
	found, rest, err := newRoot(io.Discard, io.Discard).Find(args)
	if err != nil {
		return err
	}
	switch path := found.CommandPath(); path {
	case "ringo train":
		c := new(trainCommand)
		return parsed(c.command(), rest, c.settle)
	case "ringo run":
		c := new(runRole)
		return parsed(c.command(), rest, func(cmd *cobra.Command, _ []string) error { return errors.Join(c.check(cmd)...) })
	case "ringo server":
		c := new(serverRole)
		return parsed(c.command(), rest, func(cmd *cobra.Command, _ []string) error { return errors.Join(c.check(cmd)...) })
	case "ringo bench step":
		cmd := steps.Command(&idleTrainers{})
		return parsed(cmd, rest, cmd.RunE)
	case "ringo bench allreduce":
		cmd := collectives.AllReduce(&idleRanks{})
		return parsed(cmd, rest, cmd.RunE)
	case "ringo bench collective":
		cmd := collectives.Command(&idleRanks{})
		return parsed(cmd, rest, cmd.RunE)
	case "ringo jobs", "ringo plan", "ringo completion", "ringo man":
		var errs strings.Builder
		if status := run(context.Background(), args, io.Discard, &errs); status != 0 {
			return fmt.Errorf("status %d: %s", status, errs.String())
		}
		return nil
	}
	return parsed(found, rest, func(*cobra.Command, []string) error { return nil })
}

// parsed has a command read its words, and does what it is then to do.
func parsed(cmd *cobra.Command, args []string, do func(*cobra.Command, []string) error) error {
	cmd.SetErr(io.Discard)
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	words := cmd.Flags().Args()
	if err := errors.Join(cmd.ValidateArgs(words), cmd.ValidateRequiredFlags()); err != nil {
		return err
	}
	return do(cmd, words)
}

// idleRanks are ranks of a measuring program that are not started.
type idleRanks struct{ benchRanks }

func (*idleRanks) Run(*cobra.Command, func(*ringo.Job) error) error { return nil }

// idleTrainers are such ranks that would train.
type idleTrainers struct{ benchTrainers }

func (*idleTrainers) Run(*cobra.Command, func(*ringo.Job) error) error { return nil }

// The programs that compare ringo with others, which documents name, are there and know the options that are given them.
func TestProgramsOfBenchExist(t *testing.T) {
	found := 0
	for name, text := range documents(t) {
		for _, m := range programOfBench.FindAllStringSubmatch(text, -1) {
			found++
			source, err := os.ReadFile(filepath.Join("..", "..", m[1]))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, f := range flagMention.FindAllStringSubmatch(m[2], -1) {
				if !strings.Contains(string(source), `"--`+f[1]+`"`) {
					t.Errorf("%s: %s has no --%s", name, m[1], f[1])
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d were found: are they looked for where they are?", found)
	}
}

// TestIndexListsAllPages: docs/README.md has a link to each page of docs and below it.
func TestIndexListsAllPages(t *testing.T) {
	dir := filepath.Join("..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || filepath.Ext(path) != ".md" || name == "README.md" {
			return err
		}
		pages++
		if !strings.Contains(string(text), "]("+filepath.ToSlash(name)+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
		return nil
	})
	if err != nil || pages < 20 {
		t.Errorf("%d pages were found: %v", pages, err)
	}
}
