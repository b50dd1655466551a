package mangen

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
)

// Section is an additional section of a command's page.
type Section struct {
	// Command is the command's name.
	Command string
	// Title is the section's title, in capitals.
	Title string
	// Text is written unchanged, line by line.
	Text string
}

// Man is `ringo man DIR`, for a version of the program.
func Man(version string, more ...Section) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write man pages",
		Example: "  ringo man ~/.local/share/man/man1 && man ringo-train",
		Args:    cli.OneArgument("a folder", "man1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			for _, c := range all(cmd.Root()) {
				if c.Name() == "help" {
					continue
				}
				write := func(w io.Writer) error { return page(w, c, version, more) }
				if err := dirlock.WriteFile(filepath.Join(args[0], path(c, "-")+".1"), write); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// page writes a command's page in the macros of man(7).
func page(w io.Writer, cmd *cobra.Command, version string, more []Section) error {
	var b strings.Builder
	name := path(cmd, "-")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s\" \"Ringo\"\n", strings.ToUpper(roff(name)), roff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(strings.TrimSuffix(cmd.UseLine(), " [flags]")))
	if cmd.HasAvailableFlags() {
		b.WriteString("[\\fIflags\\fR]\n")
	}
	section(&b, "DESCRIPTION", cmd.Long)
	below := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
	if len(below) > 0 {
		b.WriteString(".SH COMMANDS\n")
	}
	for _, c := range below {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(c.Name()), roff(c.Short))
	}
	options(&b, cmd)
	for _, s := range more {
		if s.Command == cmd.Name() {
			section(&b, s.Title, s.Text)
		}
	}
	section(&b, "EXAMPLES", cmd.Example)
	b.WriteString(".SH EXIT STATUS\n0 for success, 2 for a fault of the command line, 128 and its number for a signal, else 1.\n")
	related := below
	if cmd.HasParent() {
		related = append([]*cobra.Command{cmd.Parent()}, below...)
	}
	if len(related) > 0 {
		b.WriteString(".SH SEE ALSO\n")
	}
	for i, c := range related {
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(path(c, "-")), strings.Repeat(",", min(1, len(related)-1-i)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func section(b *strings.Builder, title, text string) {
	if text != "" {
		fmt.Fprintf(b, ".SH %s\n.nf\n%s\n.fi\n", title, roff(strings.TrimRight(text, "\n")))
	}
}

func options(b *strings.Builder, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if cmd.HasAvailableFlags() {
		b.WriteString(".SH OPTIONS\n")
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.Name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		fmt.Fprintf(b, "\n%s%s\n", roff(usage), roff(usual(f)))
	})
}

func usual(f *pflag.Flag) string {
	if slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// roff escapes text: backslashes, hyphens, which would become another sign, non-ASCII characters,
// and line beginnings that look like requests.
func roff(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
