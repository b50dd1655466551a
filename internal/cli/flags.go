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

// MostTurns bounds the number of measurements: a higher one is a typing error.
const MostTurns = 1000

// Choice adds a flag that takes one of some words, and has the field's value unless it is given. Completion offers them.
func Choice(cmd *cobra.Command, field *string, name, usage string, words ...string) {
	cmd.Flags().StringVar(field, name, *field, usage)
	Offer(cmd, name, words...)
}

// Offer has completion offer words for a flag.
func Offer(cmd *cobra.Command, flag string, words ...string) {
	// It fails for a flag that there is not, or that has words already, which the tests of completion would find.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// ChosenFrom adds a flag that is a list of words, some of which are known. Completion offers these.
func ChosenFrom(cmd *cobra.Command, field *[]string, name, usage string, words ...string) {
	cmd.Flags().StringSliceVar(field, name, *field, usage)
	Offer(cmd, name, words...)
}

// JSON adds the flag that names the file for lines of JSON, of which there is one per thing.
func JSON(cmd *cobra.Command, field *string, thing string) {
	cmd.Flags().StringVar(field, "json", "", "write one JSON object per "+thing+" to `FILE`, or to stdout with -")
}

// Size is a flag: a number of bytes, as people write them.
type Size int64

// Set reads such as 4GiB, 1.5GB, 300000000 or 0.
func (b *Size) Set(text string) error {
	if err := setting.Bytes(b).Set(text); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// String writes what Set reads, exactly.
func (b *Size) String() string { return setting.Bytes(b).String() }

// Type is the flag's kind in help texts.
func (b *Size) Type() string { return "size" }

// Count is a flag like 10M.
type Count int64

// String is empty, so that help shows no default.
func (n *Count) String() string { return "" }

// Type is the flag's kind in help texts.
func (n *Count) Type() string { return "rows" }

// Set reads such as 5000, 500k or 10M.
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

// HasAny tells whether text has one of some words in it; none: it does.
func HasAny(text string, words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// Former adds a hidden flag of an earlier version, which sets the flag now and prints a warning.
func Former(fs *pflag.FlagSet, old, now string) {
	f := *fs.Lookup(now)
	f.Name, f.Hidden, f.Deprecated = old, true, "use --"+now
	fs.AddFlag(&f)
}
