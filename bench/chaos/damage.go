package main

import (
	"bytes"
	"math/rand/v2"
)

// harm is a way to damage a file.
type harm string

const (
	truncated harm = "cut"
	flipped   harm = "a flipped bit"
	zeroed    harm = "a zeroed block"
	swapped   harm = "swapped halves"
	emptied   harm = "emptied"
	appended  harm = "garbage at its end"
)

var harms = []harm{truncated, flipped, zeroed, swapped, emptied, appended}

// apply returns damaged content. Where it strikes is a function of at alone, so that a
// case repeats though its file has another length.
func (h harm) apply(content []byte, at uint64) []byte {
	rng := rand.New(rand.NewPCG(at, 0))
	out := bytes.Clone(content)
	if len(out) == 0 && h != appended {
		return out
	}
	switch h {
	case truncated:
		return out[:rng.IntN(len(out))]
	case flipped:
		out[rng.IntN(len(out))] ^= 1 << rng.IntN(8)
	case zeroed:
		from := rng.IntN(len(out))
		clear(out[from:min(from+512, len(out))])
	case swapped:
		half := len(out) / 2
		return append(out[half:len(out):len(out)], out[:half]...)
	case emptied:
		return nil
	case appended:
		for range 1 + rng.IntN(64) {
			out = append(out, byte(rng.Uint32()))
		}
	}
	return out
}
