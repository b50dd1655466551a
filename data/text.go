package data

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// The first two tokens of a vocabulary of words.
const (
	unknownWord = "<unk>" // every word that is not in the vocabulary
	lineEnd     = "<eos>" // after each line, empty ones too
)

const (
	textVocabulary = 10_000
	textSteps      = 35
	charSteps      = 128
)

// tokens is the source of sequences out of one text: sample i is the tokens
// from i*steps on, its labels the same shifted by one. Fewer than steps tokens
// at the end belong to no sample.
type tokens struct {
	ids   []int32
	steps int
}

func (s *tokens) Len() int             { return (len(s.ids) - 1) / s.steps }
func (s *tokens) Shape() Shape         { return Shape{IDs: s.steps, Labels: s.steps} }
func (s *tokens) evidence(w io.Writer) { _, _ = w.Write(bytesview.Bytes(s.ids)) }

// Fill copies the sequences.
func (s *tokens) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(s.Shape(), len(idx))
	for i, n := range idx {
		if n < 0 || int(n) >= s.Len() {
			panic(fmt.Sprintf("data: sequence %d of %d", n, s.Len()))
		}
		from := s.ids[int(n)*s.steps:][:s.steps+1]
		copy(b.IDs[i*s.steps:][:s.steps], from)
		copy(b.Labels[i*s.steps:][:s.steps], from[1:])
	}
	return nil
}

// vocabulary numbers words.
type vocabulary struct {
	ids   map[string]int32
	words []string
}

func newVocabulary() *vocabulary {
	return &vocabulary{map[string]int32{unknownWord: 0, lineEnd: 1}, []string{unknownWord, lineEnd}}
}

// id is the number of a word; grow adds one that is new, otherwise it is
// unknown.
func (v *vocabulary) id(word []byte, grow bool) int32 {
	if id, ok := v.ids[string(word)]; ok || !grow {
		return id // 0 where there is none
	}
	id := int32(len(v.words))
	w := string(word)
	v.ids[w] = id
	v.words = append(v.words, w)
	return id
}

// keep reduces the vocabulary to the most frequent words, the first that came
// first where frequencies are equal, and renumbers them and the text so.
func (v *vocabulary) keep(most int, text []int32) {
	count := make([]int, len(v.words))
	for _, id := range text {
		count[id]++
	}
	order := make([]int32, 0, len(v.words))
	for id := 2; id < len(v.words); id++ {
		order = append(order, int32(id))
	}
	slices.SortStableFunc(order, func(a, b int32) int { return count[b] - count[a] })
	order = order[:min(len(order), most-2)]
	renumbered := make([]int32, len(v.words))
	renumbered[1] = 1
	kept := newVocabulary()
	for _, id := range order {
		renumbered[id] = kept.id([]byte(v.words[id]), true)
	}
	for i, id := range text {
		text[i] = renumbered[id]
	}
	*v = *kept
}

// tooManyTokens is the fault of a text that memory is not for: 4 bytes for each token.
func tooManyTokens(name string, offset int64, most int) error {
	return datafile.Errorf(name, offset, "more than %d tokens: give a part of it", most)
}

// readWords numbers the words of a text, of which it takes so many tokens at most, separated by white space, with
// lineEnd after each line. A line that is not UTF-8 is a fault.
func readWords(name string, r io.Reader, v *vocabulary, grow bool, most int, bad *datafile.Skips) (ids []int32, err error) {
	in := bufio.NewReaderSize(r, 1<<18)
	var long []byte // a line that the reader's buffer does not hold
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

// readChars numbers the bytes of a text by their values, so many at most.
func readChars(name string, r io.Reader, most int) ([]int32, error) {
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

func findChars(c Config) error {
	_, err := datafile.FindPair("chars", c.Dir, c.TrainFile, c.EvalFile)
	return err
}

func findText(c Config) error {
	_, err := datafile.FindPair("text", c.Dir, c.TrainFile, c.EvalFile)
	return err
}

// openText reads two texts as words. The vocabulary is the training text's.
func openText(c Config, bad *datafile.Skips) (*Dataset, error) {
	v := newVocabulary()
	s, err := openTokens("text", c, or(c.Steps, textSteps), func(name string, r io.Reader, training bool) ([]int32, error) {
		ids, err := readWords(name, r, v, training, datafile.MaxElements, bad)
		if err == nil && training {
			v.keep(or(c.Vocabulary, textVocabulary), ids)
		}
		return ids, err
	})
	if err != nil {
		return nil, err
	}
	s.Vocabulary, s.Words = len(v.words), v.words
	return s, nil
}

// openChars reads two texts byte by byte.
func openChars(c Config, _ *datafile.Skips) (*Dataset, error) {
	s, err := openTokens("chars", c, or(c.Steps, charSteps), func(name string, r io.Reader, _ bool) ([]int32, error) {
		return readChars(name, r, datafile.MaxElements)
	})
	if err != nil {
		return nil, err
	}
	s.Vocabulary = 256
	return s, nil
}

// openTokens reads the training and then the evaluation text.
func openTokens(set string, c Config, steps int, read func(name string, r io.Reader, training bool) ([]int32, error)) (*Dataset, error) {
	files, err := datafile.FindPair(set, c.Dir, c.TrainFile, c.EvalFile)
	if err != nil {
		return nil, err
	}
	s := &Dataset{Streams: true, Notes: files.Notes()}
	for _, part := range []struct {
		path string
		into *Source
	}{{files.Train, &s.Train}, {files.Eval, &s.Eval}} {
		f, err := datafile.OpenText(part.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", set, err)
		}
		ids, err := read(part.path, f, part.into == &s.Train)
		if err == nil && len(ids) <= steps {
			err = datafile.Errorf(part.path, 0, "%d tokens are too few for one sequence of %d and the token after it: give a longer file", len(ids), steps)
		}
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", set, err)
		}
		*part.into = &tokens{ids, steps}
	}
	return s, nil
}
