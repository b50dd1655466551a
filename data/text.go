package data

import (
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/text"
)

const (
	textVocabulary = 10_000
	textSteps      = 35
	charSteps      = 128
)

// tokens is the source of sequences of one text. Sample i is the tokens from i*steps on, with the
// same tokens shifted by one as labels. Fewer than steps tokens at the end belong to no sample.
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

func findChars(c Config) error {
	_, err := datafile.FindPair("chars", c.Dir, c.TrainFile, c.EvalFile)
	return err
}

func findText(c Config) error {
	_, err := datafile.FindPair("text", c.Dir, c.TrainFile, c.EvalFile)
	return err
}

// openText reads two texts as words, with the training text's vocabulary.
func openText(c Config, bad *datafile.Skips) (*Dataset, error) {
	v := text.NewVocabulary()
	s, err := openTokens("text", c, or(c.Steps, textSteps), func(name string, r io.Reader, training bool) ([]int32, error) {
		ids, err := text.ReadWords(name, r, v, training, datafile.MaxElements, bad)
		if err == nil && training {
			v.Keep(or(c.Vocabulary, textVocabulary), ids)
		}
		return ids, err
	})
	if err != nil {
		return nil, err
	}
	s.Vocabulary, s.Words = len(v.Words), v.Words
	return s, nil
}

// openChars reads two texts byte by byte.
func openChars(c Config, _ *datafile.Skips) (*Dataset, error) {
	s, err := openTokens("chars", c, or(c.Steps, charSteps), func(name string, r io.Reader, _ bool) ([]int32, error) {
		return text.ReadBytes(name, r, datafile.MaxElements)
	})
	if err != nil {
		return nil, err
	}
	s.Vocabulary = 256
	return s, nil
}

// openTokens reads the training text, then the evaluation text.
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

// syntheticText returns as many tokens as the Penn Treebank has: 930,000 for training, 82,000 for
// evaluation.
func syntheticText(c Config) *Dataset {
	vocabulary, steps := or(c.Vocabulary, textVocabulary), or(c.Steps, textSteps)
	source := func(part uint64, sequences, size int) Source {
		n := or(sequences, max(1, size/steps))*steps + 1
		return &tokens{text.SyntheticWords(vocabulary, n, c.Seed, part), steps}
	}
	return &Dataset{
		Train: source(0, c.TrainLimit, 930_000), Eval: source(1, c.EvalLimit, 82_000),
		Vocabulary: vocabulary, Streams: true,
	}
}

// syntheticChars returns a million bytes for training and a hundred thousand for evaluation.
func syntheticChars(c Config) *Dataset {
	steps := or(c.Steps, charSteps)
	source := func(part uint64, sequences, size int) Source {
		return &tokens{text.SyntheticBytes(or(sequences, max(1, size/steps))*steps+1, c.Seed, part), steps}
	}
	return &Dataset{
		Train: source(0, c.TrainLimit, 1_000_000), Eval: source(1, c.EvalLimit, 100_000),
		Vocabulary: 256, Streams: true,
	}
}
