package text

import (
	"math"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

const languageStream = 0xa54ff53a5f1d36f1

// chain is a made-up language: words in order of frequency (Zipf's law). Each word has a few
// followers: four times in five one of them comes next, most often the first.
type chain struct {
	words int
	seed  uint64
	bound []uint64 // bound[i]: share of words up to i, in units of 2^-63
}

const followers = 6 // preferred followers of a word

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

// any draws a word by frequency.
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

// after draws the follower of a word.
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

// SyntheticWords returns n tokens of a made-up language: word numbers below vocabulary, and word 1,
// the end of a line, after 20 words on average. All parts of a seed are in the same language.
func SyntheticWords(vocabulary, n int, seed, part uint64) []int32 {
	language := newChain(vocabulary-2, seed^languageStream)
	ids := make([]int32, n)
	r := prng.New(seed^languageStream, 1<<40, part)
	word := language.any(&r)
	for i := range ids {
		if r.Below(20) == 0 {
			ids[i] = 1
			continue
		}
		word = language.after(word, &r)
		ids[i] = int32(word + 2)
	}
	return ids
}

// SyntheticBytes returns n bytes of a made-up language: words of two to seven letters, and
// sentences.
func SyntheticBytes(n int, seed, part uint64) (ids []int32) {
	language := newChain(1000, seed^languageStream)
	r := prng.New(seed^languageStream, 1<<41, part)
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
	return ids[:n]
}

// appendSpelling appends a word as syllables of a consonant and a vowel.
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
