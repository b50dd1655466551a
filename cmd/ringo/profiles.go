package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/profiles"
	"github.com/ringo-ml/ringo/internal/setting"
)

// profiles tells profilers what takes a rank's time, where that is wanted; nil: it is not. Ranks that are goroutines are one process, of which
// rank 0 tells.
func (f *jobFlags) profiles(cmd *cobra.Command, rank int) (*profiles.Site, error) {
	at := f.Output.Profiles
	if at == "" || rank > 0 && f.InProcess() {
		return nil, nil
	}
	s, err := profiles.Serve(at, rank)
	if err != nil {
		return nil, setting.Faultf("output.pprof", "of rank %d: %w", rank, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "ringo: profiles of rank %d: %s\n", rank, s.URL())
	return s, nil
}
