package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/live"
	"github.com/ringo-ml/ringo/launch"
	"github.com/ringo-ml/ringo/setting"
)

// pageVar holds, in the environment of a launcher's processes, where they tell what its page shows; empty: nowhere.
const pageVar = "RINGO_PAGE"

// watched does what goes on behind a page, where the job has one. Its place is the process that sees all ranks of the host and outlives
// them: the launcher, or of ranks that are goroutines or started by hand the process of rank 0.
func (f *jobFlags) watched(cmd *cobra.Command, do func() error) error {
	if f.Output.Page == "" || f.worker || f.ByHand() && f.Rank > 0 {
		return do()
	}
	say := func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "ringo:", line) }
	return live.While(f.Output.Page, say, func(h *live.Hub) error {
		f.hub = h
		h.AskServers(cmd.Context(), f.Keep.HTTP, f.Keepers())
		err := do()
		return errors.Join(err, f.tellWaits(cmd, h))
	})
}

// tellWaits writes who waited for whom behind the records of the run, which rank 0 has written: it knows its own waits alone.
func (f *jobFlags) tellWaits(cmd *cobra.Command, h *live.Hub) error {
	w, ok := h.Waits()
	if !ok || f.Output.JSON == "" {
		return nil
	}
	if f.Output.JSON == "-" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(w)
	}
	file, err := os.OpenFile(f.Output.JSON, os.O_APPEND|os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no run has begun
	}
	if err == nil {
		err = errors.Join(json.NewEncoder(file).Encode(w), file.Close())
	}
	if err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// pageFault reports an address that cannot be.
func (f *jobFlags) pageFault() error {
	if f.Output.Page == "" {
		return nil
	}
	if err := live.CheckAddress(f.Output.Page); err != nil {
		return setting.Faultf("output.page", "%w", err)
	}
	return nil
}

// feed is what a rank tells the page by; nil where there is none.
func (f *jobFlags) feed() *live.Feed {
	if f.hub != nil {
		return f.hub.Feed()
	}
	address, _ := os.LookupEnv(pageVar)
	if !f.worker || address == "" {
		return nil
	}
	return live.Dial(address)
}

// tells lets a launcher's processes, and the launcher, tell the page.
func (f *jobFlags) tells(cfg *launch.Config) {
	address := ""
	if f.hub != nil {
		address, cfg.OnReport = f.hub.Address(), f.hub.Tell
		cfg.OnMemory = func(rank int, memory io.ReaderAt) { f.hub.Watch(rank, live.Of(memory)) }
	}
	cfg.Env = append(cfg.Env, pageVar+"="+address) // another job's, which has started this one, is not ours
}
