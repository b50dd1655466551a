package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/launch"
)

// addOther adds what launch.FromEnv has said of another launcher that has started this
// program more than once, with the command lines that would do what was meant.
func (l *faultList) addOther(cmd *cobra.Command, err error) {
	var other *launch.OtherLauncherError
	if !errors.As(err, &other) {
		return
	}
	var given []string
	cmd.Flags().Visit(func(f *pflag.Flag) { given = append(given, "--"+f.Name+"="+flagText(f)) })
	if np := cmd.Flags().Lookup("np"); np != nil && !np.Changed {
		given = append(given, fmt.Sprintf("--np=%d", other.Size))
	}
	own := append(strings.Fields(cmd.CommandPath()), given...)
	if cmd.Name() == "run" {
		own = append(own, "--") // what follows is the program's
	}
	own = append(own, cmd.Flags().Args()...)
	once := "`" + launch.Quote(own) + "`"
	if cmd.Flags().Lookup("rank") != nil {
		placed := []string{"--np=", "--transport=mem"}
		own = slices.DeleteFunc(own, func(a string) bool {
			return slices.ContainsFunc(placed, func(p string) bool { return strings.HasPrefix(a, p) })
		})
		once += "; or place each rank by hand, with HOST the host of rank 0: `" + other.ByHand(own) + "`"
	}
	l.add("%s", other.Explain(once))
}
