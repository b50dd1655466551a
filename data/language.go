package data

import (
	"math"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

const languageStream = 0xa54ff53a5f1d36f1

// chain is a made-up language: words in order of frequency (Zipf's law), each
// of which is followed, four times in five, by one of a few words of its own,
// the first of them most often.
type chain struct {
	words int
	seed  uint64
	bound []uint64 // bound[i] is how often, of 2^63, the word is at most i
}

const followers = 6 // words that a word likes to be followed by

func newChain(words int, seed uint64) *chain {
	c := &chain{words, seed, make([]uint64, words)}
	total := 0.0
	for i := range words {
		total += 1 / (float64(i) + 2.7) // Zipf-Mandelbrot
	}
	sum := 0.0
	for i := range words {
		sum += 1 / (float64(i) + 2.7)
		c.bound[i] = uint64(math.Min(sum/total, 1) * (1 << 63))
	}
	return c
}

// any draws a word by frequency alone.
func (c *chain) any(r *prng.Rand) int {
	x := r.Next() >> 1
	lo, hi := 0, c.words-1
	for lo < hi {
		if mid := (lo + hi) / 2; c.bound[mid] < x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// after draws the word that follows one.
func (c *chain) after(word int, r *prng.Rand) int {
	if r.Below(5) == 0 {
		return c.any(r)
	}
	nth := 0
	for nth < followers-1 && r.Below(2) == 1 {
		nth++
	}
	own := prng.New(c.seed, uint64(word), uint64(nth))
	return c.any(&own)
}

// syntheticText makes tokens of the size of the Penn Treebank: about 930,000
// to train on, 82,000 to evaluate. Word 1, after which lines end, comes 20
// words apart on average. The same seed gives the same text; both parts are of
// one language.
func syntheticText(c Config) *Dataset {
	vocabulary, steps := or(c.Vocabulary, textVocabulary), or(c.Steps, textSteps)
	language := newChain(vocabulary-2, c.Seed^languageStream)
	source := func(set uint64, sequences, usual int) Source {
		n := or(sequences, max(1, usual/steps))*steps + 1
		ids := make([]int32, n)
		r := prng.New(c.Seed^languageStream, 1<<40, set)
		word := language.any(&r)
		for i := range ids {
			if r.Below(20) == 0 {
				ids[i] = 1
				continue
			}
			word = language.after(word, &r)
			ids[i] = int32(word + 2)
		}
		return &tokens{ids, steps}
	}
	return &Dataset{
		Train: source(0, c.TrainLimit, 930_000), Eval: source(1, c.EvalLimit, 82_000),
		Vocabulary: vocabulary, Streams: true,
	}
}

// syntheticChars spells such a language out, a million bytes to train on and a
// hundred thousand to evaluate: words of two to seven letters, sentences.
func syntheticChars(c Config) *Dataset {
	steps := or(c.Steps, charSteps)
	language := newChain(1000, c.Seed^languageStream)
	source := func(set uint64, sequences, usual int) Source {
		n := or(sequences, max(1, usual/steps))*steps + 1
		var ids []int32
		r := prng.New(c.Seed^languageStream, 1<<41, set)
		word := language.any(&r)
		for len(ids) < n {
			ids = appendSpelling(ids, language.seed, word)
			if r.Below(10) == 0 {
				ids = append(ids, '.', '\n')
			} else {
				ids = append(ids, ' ')
			}
			word = language.after(word, &r)
		}
		return &tokens{ids[:n], steps}
	}
	return &Dataset{
		Train: source(0, c.TrainLimit, 1_000_000), Eval: source(1, c.EvalLimit, 100_000),
		Vocabulary: 256, Streams: true,
	}
}

// appendSpelling writes a word as syllables of a consonant and a vowel.
func appendSpelling(ids []int32, seed uint64, word int) []int32 {
	const consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
	r := prng.New(seed, 1<<42, uint64(word))
	for range r.Between(1, 3) {
		ids = append(ids, int32(consonants[r.Below(len(consonants))]), int32(vowels[r.Below(len(vowels))]))
	}
	if r.Below(2) == 1 {
		ids = append(ids, int32(consonants[r.Below(len(consonants))]))
	}
	return ids
}
