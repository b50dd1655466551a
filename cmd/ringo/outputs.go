package main

import (
	"errors"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/console"
)

// checkOutputs reports files that cannot be written before ranks are started: they
// would all say so, some of them only at the end of a run. It is left to rank 0 where
// that is on another host. trace is "" of commands that draw no timeline.
func (f *jobFlags) checkOutputs(json, trace string) error {
	if f.worker || f.Rank > 0 {
		return nil
	}
	save := f.tuning.save
	switch {
	case trace == "-" || save == "-":
		return usagef("--trace and --save-profile want a file: only --json writes to stdout with -")
	case trace != "" && trace == json || save != "" && oneOf(save, json, trace):
		return usagef("--json, --trace and --save-profile want a file each")
	}
	return errors.Join(console.Writable("--json", json), console.Creatable("--trace", trace), console.Creatable("--save-profile", save))
}
