// Package text reads text as tokens, of words or bytes, and generates synthetic text.
package text

import (
	"bufio"
	"bytes"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// First two tokens of a vocabulary of words.
const (
	unknownWord = "<unk>" // any unknown word
	lineEnd     = "<eos>" // end of each line
)

// Vocabulary numbers words.
type Vocabulary struct {
	ids   map[string]int32
	Words []string
}

// NewVocabulary returns a vocabulary with the unknown word (0) and the end of a line (1).
func NewVocabulary() *Vocabulary {
	return &Vocabulary{map[string]int32{unknownWord: 0, lineEnd: 1}, []string{unknownWord, lineEnd}}
}

// id returns the number of a word. With grow it adds a new word; otherwise a new word is unknown.
func (v *Vocabulary) id(word []byte, grow bool) int32 {
	if id, ok := v.ids[string(word)]; ok || !grow {
		return id // 0 for an unknown word
	}
	id := int32(len(v.Words))
	w := string(word)
	v.ids[w] = id
	v.Words = append(v.Words, w)
	return id
}

// Keep reduces the vocabulary to the most frequent words, the earlier word first at equal
// frequency, and renumbers words and text.
func (v *Vocabulary) Keep(most int, text []int32) {
	count := make([]int, len(v.Words))
	for _, id := range text {
		count[id]++
	}
	order := make([]int32, 0, len(v.Words))
	for id := 2; id < len(v.Words); id++ {
		order = append(order, int32(id))
	}
	slices.SortStableFunc(order, func(a, b int32) int { return count[b] - count[a] })
	order = order[:min(len(order), most-2)]
	renumbered := make([]int32, len(v.Words))
	renumbered[1] = 1
	kept := NewVocabulary()
	for _, id := range order {
		renumbered[id] = kept.id([]byte(v.Words[id]), true)
	}
	for i, id := range text {
		text[i] = renumbered[id]
	}
	*v = *kept
}

// tooManyTokens is the error of a text above the memory limit, at 4 bytes per token.
func tooManyTokens(name string, offset int64, most int) error {
	return datafile.Errorf(name, offset, "more than %d tokens: give a part of it", most)
}

// ReadWords numbers the words of a text, separated by white space, with lineEnd after each line, up
// to a limit of tokens. A line that is not UTF-8 is a bad sample.
func ReadWords(name string, r io.Reader, v *Vocabulary, grow bool, most int, bad *datafile.Skips) (ids []int32, err error) {
	in := bufio.NewReaderSize(r, 1<<18)
	var long []byte // line longer than the reader's buffer
	offset := int64(0)
	for line := 1; ; line++ {
		text, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			long = append(long[:0], text...)
			for err == bufio.ErrBufferFull {
				if text, err = in.ReadSlice('\n'); len(long) > most {
					return nil, tooManyTokens(name, offset, most)
				}
				long = append(long, text...)
			}
			text = long
		}
		if err != nil && err != io.EOF {
			return nil, datafile.ReadFault(name, offset+int64(len(text)), err)
		}
		if len(text) == 0 && err == io.EOF {
			return ids, nil
		}
		if at := table.NotText(text); at >= 0 {
			fault := datafile.Errorf(name, offset+int64(at), "line %d: byte %#02x is not UTF-8 text", line, text[at])
			if err := bad.Skip(fault); err != nil {
				return nil, err
			}
		} else {
			for word := range bytes.FieldsSeq(text) {
				ids = append(ids, v.id(word, grow))
			}
			if ids = append(ids, 1); len(ids) > most {
				return nil, tooManyTokens(name, offset, most)
			}
		}
		offset += int64(len(text))
	}
}

// ReadBytes numbers the bytes of a text by value, up to a limit.
func ReadBytes(name string, r io.Reader, most int) ([]int32, error) {
	var ids []int32
	buf := make([]byte, 1<<16)
	for {
		n, err := r.Read(buf)
		ids = slices.Grow(ids, n)
		for _, c := range buf[:n] {
			ids = append(ids, int32(c))
		}
		if len(ids) > most {
			return nil, tooManyTokens(name, int64(most), most)
		}
		if err == io.EOF {
			return ids, nil
		}
		if err != nil {
			return nil, datafile.ReadFault(name, int64(len(ids)), err)
		}
	}
}
