package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/timeslice"
)

// sliceFlag says for how long a thread may run while another waits for its core.
type sliceFlag struct{ slice time.Duration }

const sliceName = "slice"

func (f *sliceFlag) register(fs *pflag.FlagSet) {
	fs.DurationVar(&f.slice, sliceName, timeslice.Short, "how long a thread may run while others wait for its core: short, so that one that computes lets one that communicates through; 0 leaves it as it is. Linux from 6.12 on")
}

func (f *sliceFlag) check(faults *faultList) {
	if f.slice == 0 {
		return
	}
	if err := timeslice.Check(f.slice); err != nil {
		faults.add("--%s: %w, or 0", sliceName, err)
	}
}

// apply gives this process its slices, and those that it starts. What was started by a
// launcher has the launcher's, unless it was told. Unless it was asked for it is a hint:
// the system may refuse.
func (f *sliceFlag) apply(cmd *cobra.Command, launched bool) error {
	told := cmd.Flags().Changed(sliceName)
	if f.slice == 0 || launched && !told {
		return nil
	}
	if err := timeslice.Set(f.slice); err != nil && told {
		return fmt.Errorf("--%s %v: %w", sliceName, f.slice, err)
	}
	return nil
}
