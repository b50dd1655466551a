package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/setting"
)

// MostTurns limits the number of measurements: a larger number is a typing error.
const MostTurns = 1000

// Choice adds a flag with a fixed set of words, for completion, and the field's value as default.
func Choice(cmd *cobra.Command, field *string, name, usage string, words ...string) {
	cmd.Flags().StringVar(field, name, *field, usage)
	Offer(cmd, name, words...)
}

// Offer adds words for shell completion of a flag.
func Offer(cmd *cobra.Command, flag string, words ...string) {
	// An error means an unknown flag or a second set of words; completion tests detect both.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// ChosenFrom adds a flag for a list of words. Shell completion offers the known words.
func ChosenFrom(cmd *cobra.Command, field *[]string, name, usage string, words ...string) {
	cmd.Flags().StringSliceVar(field, name, *field, usage)
	Offer(cmd, name, words...)
}

// JSON adds the flag for the file of JSON lines, with one line per thing.
func JSON(cmd *cobra.Command, field *string, thing string) {
	cmd.Flags().StringVar(field, "json", "", "write one JSON object per "+thing+" to `FILE`, or to stdout with -")
}

// Size is a flag for a number of bytes with units.
type Size int64

// Set parses text such as 4GiB, 1.5GB, 300000000 or 0.
func (b *Size) Set(text string) error {
	if err := setting.Bytes(b).Set(text); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// String formats the size exactly, in Set's syntax.
func (b *Size) String() string { return setting.Bytes(b).String() }

// Type returns the flag's type in help texts.
func (b *Size) Type() string { return "size" }

// Count is a flag such as 10M.
type Count int64

// String returns "", so help prints no default.
func (n *Count) String() string { return "" }

// Type returns the flag's type in help texts.
func (n *Count) Type() string { return "rows" }

// Set parses text such as 5000, 500k or 10M.
func (n *Count) Set(text string) error {
	number, unit := strings.TrimSpace(text), 1.0
	for suffix, u := range map[string]float64{"k": 1e3, "m": 1e6, "g": 1e9} {
		if rest, ok := strings.CutSuffix(strings.ToLower(number), suffix); ok {
			number, unit = rest, u
			break
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	rows := math.Round(x * unit)
	if err != nil || !(rows >= 1 && rows <= 1e12) {
		return errors.New("want a number of rows such as 5000, 500k or 10M")
	}
	*n = Count(rows)
	return nil
}

// HasAny reports whether text contains any of words, or words is empty.
func HasAny(text string, words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// Former adds a hidden flag of an earlier version, which sets the new flag and prints a warning.
func Former(fs *pflag.FlagSet, old, now string) {
	f := *fs.Lookup(now)
	f.Name, f.Hidden, f.Deprecated = old, true, "use --"+now
	fs.AddFlag(&f)
}
