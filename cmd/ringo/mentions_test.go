package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mentions are the texts that a person reads: strings of the program, and documents.
func mentions(t *testing.T) map[string][]string {
	t.Helper()
	root, out := filepath.Join("..", ".."), map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && path != root || oneOf(name, "bench", filepath.Join("internal", "simd", "gen")) {
				return filepath.SkipDir
			}
			return nil
		}
		switch {
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md": // which tells of the past, too
			text, err := os.ReadFile(path)
			out[name] = []string{string(text)}
			return err
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						out[name] = append(out[name], text)
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil || len(out["README.md"]) == 0 {
		t.Fatalf("%d files, %v", len(out), err)
	}
	return out
}

var (
	quotedCommand  = regexp.MustCompile("`ringo( [^`]*)?`")
	writtenCommand = regexp.MustCompile(`(?m)^(?: {2,}|\$ )ringo ([a-z]+ .*)$`)
	programOfBench = regexp.MustCompile("`((?:bench|python)/[a-z/]+\\.py)( [^`]*)?`")
	flagMention    = regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]+)`)
)

// Every command and every flag that a message or a document names exists: a command with the flags
// that are named beside it, a flag alone on one command at least.
func TestWhatIsNamedExists(t *testing.T) {
	root := newRoot(nil, nil)
	known := map[string]bool{"help": true, "version": true}
	each(root, func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		for name := range flagsOf(cmd) {
			known[name] = true
		}
	})
	others := []string{"long", "ntasks", "nodes", "nproc-per-node", "no-python", "logdir", "hostfile", "cflags", "libs", "asan", "symbols", "valgrind", "starts", "redirects", "tee", "log", "from-file", "system-site-packages", "ignore-scripts", "check", "device", "quiet", "max-restarts", "monitor"} // of python3 -m venv and -m ringo.torch.part, npm, kubectl, zstd, srun, torchrun, TensorBoard, mpirun, pkg-config, capi/build.sh and capi/test.sh
	commands, flags := 0, 0
	for file, texts := range mentions(t) {
		for _, text := range texts {
			text = programOfBench.ReplaceAllString(text, "")
			for _, m := range slices.Concat(quotedCommand.FindAllStringSubmatch(text, -1), writtenCommand.FindAllStringSubmatch(text, -1)) {
				commands++
				if fault := missing(root, m[1]); fault != "" {
					t.Errorf("%s: %q: %s", file, m[0], fault)
				}
			}
			for _, m := range flagMention.FindAllStringSubmatch(text, -1) {
				flags++
				if name := strings.TrimRight(m[1], "-"); !known[name] && !oneOf(name, others...) {
					t.Errorf("%s: there is no --%s", file, name)
				}
			}
		}
	}
	if commands < 50 || flags < 300 {
		t.Errorf("%d commands and %d flags were found: are they looked for where they are?", commands, flags)
	}
}

// flagsOf are the flags of a command by name.
func flagsOf(cmd *cobra.Command) map[string]bool {
	out := map[string]bool{"help": true}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { out[f.Name] = true }) // hidden ones, too
	if cmd.Name() == "ringo" {
		out["version"] = true
	}
	return out
}

// missing says what a command line names that does not exist.
func missing(root *cobra.Command, line string) string {
	cmd, words := root, strings.Fields(line)
	for len(words) > 0 && cmd.HasSubCommands() && regexp.MustCompile(`^[a-z]`).MatchString(words[0]) {
		i := slices.IndexFunc(cmd.Commands(), func(sub *cobra.Command) bool { return sub.Name() == words[0] })
		if i < 0 {
			return "there is no command " + words[0]
		}
		cmd, words = cmd.Commands()[i], words[1:]
	}
	if cmd.HasSubCommands() && len(words) > 0 && strings.HasPrefix(words[0], "%") {
		return "" // it is filled in
	}
	has := flagsOf(cmd)
	for _, word := range words {
		if word == "--" || strings.HasPrefix(word, "#") {
			return ""
		}
		if m := flagMention.FindStringSubmatch(word); m != nil && !has[m[1]] {
			return cmd.CommandPath() + " has no --" + m[1]
		}
	}
	return ""
}

// The test above finds what it is there for.
func TestMissing(t *testing.T) {
	root := newRoot(nil, nil)
	for line, want := range map[string]string{
		" train mnist --np 2": "", " run --np 2 -- x --zzz": "", "": "", " ps show DIR --json -": "", " data %s --zzz": "",
		" resume log": "there is no command resume", " train mnist --zzz 3": "ringo train has no --zzz", " ps shwo DIR": "there is no command shwo", " data mnist --epochs": "ringo data mnist has no --epochs",
	} {
		if got := missing(root, line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
