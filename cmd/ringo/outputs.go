package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/internal/cli"
)

// checkOutputs reports files that cannot be written, before ranks start: otherwise all ranks would
// report them, some only at the end of a run. If rank 0 is on another host, rank 0 checks. trace is
// "" for commands without a timeline.
func (f *jobFlags) checkOutputs(json, trace string) error {
	if f.worker || f.Rank > 0 || f.part != nil && f.part.Rank > 0 {
		return nil
	}
	save := f.tuning.save
	switch {
	case trace == "-" || save == "-":
		return cli.Usagef("--trace and --cost-profile want a file: only --json writes to stdout with -")
	case trace != "" && trace == json || save != "" && oneOf(save, json, trace):
		return cli.Usagef("--json, --trace and --cost-profile want a file each")
	}
	return errors.Join(cli.Writable("--json", json), cli.Creatable("--trace", trace), cli.Creatable("--cost-profile", save))
}

// checkFolder creates a folder for rank 0, "" for none, and reports a folder in which no file can
// be created.
func (f *jobFlags) checkFolder(flag, dir string) error {
	if dir == "" || f.worker || f.Rank > 0 || f.part != nil && f.part.Rank > 0 && flag != "--log-dir" {
		return nil
	}
	if dir == "-" {
		return cli.Usagef("%s wants a folder: only --json writes to stdout with -", flag)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	try, err := os.CreateTemp(dir, "events.try")
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return errors.Join(try.Close(), os.Remove(try.Name()))
}
