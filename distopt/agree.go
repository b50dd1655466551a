package distopt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/modeltext"
)

// agreedBytes is the number of bytes of a rank's description of its strategy, which ranks compare:
// a hash and the beginning of the text.
const agreedBytes = 128

// agree returns an error if ranks have different strategies. Otherwise their exchanges would not
// match, and all ranks would wait until a timeout.
func (o *Optimizer) agree(cfg Config) error {
	if o.group.Size() == 1 {
		return nil
	}
	own, all := strategyBytes(cfg), make([]byte, agreedBytes*o.group.Size())
	if err := collective.AllGather(o.group, all, own); err != nil {
		return fmt.Errorf("comparing the strategies: %w", err)
	}
	for rank := range o.group.Size() {
		if theirs := all[rank*agreedBytes:][:agreedBytes]; !bytes.Equal(theirs, all[:agreedBytes]) {
			return fmt.Errorf("rank %d has strategy %s, rank 0 %s: all ranks must have the same", rank, strategyText(theirs), strategyText(all))
		}
	}
	return nil
}

// agreeModel returns an error with the first parameter or table that differs from rank 0's in name
// or shape. Ranks compare a hash, and texts only if hashes differ.
func agreeModel(g *collective.Group, layers []bucket.Param, rows []Table) error {
	if g.Size() == 1 {
		return nil
	}
	var text modeltext.Text
	for _, l := range layers {
		shape := l.Shape
		if shape == nil {
			shape = []int{l.Len - l.Pad}
		}
		text.Parameter(l.Name, shape...)
	}
	for _, t := range rows {
		text.Table(t.Name, fmt.Sprintf("%d rows of %d values", t.Rows, t.Dim))
	}
	sum := sha256.Sum256(text)
	sums, sizes := make([]byte, len(sum)*g.Size()), make([]int64, g.Size())
	if err := collective.AllGather(g, sums, sum[:]); err != nil {
		return fmt.Errorf("comparing the models: %w", err)
	}
	if bytes.Equal(sums, bytes.Repeat(sums[:len(sum)], g.Size())) {
		return nil
	}
	if err := collective.AllGather(g, sizes, []int64{int64(len(text))}); err != nil {
		return fmt.Errorf("comparing the models: %w", err)
	}
	lengths, total := make([]int, g.Size()), 0
	for r, n := range sizes {
		lengths[r], total = int(n), total+int(n)
	}
	joined, all := make([]byte, total), make([]modeltext.Text, g.Size())
	if err := collective.AllGatherV(g, joined, text, lengths); err != nil {
		return fmt.Errorf("comparing the models: %w", err)
	}
	for r, n := range lengths {
		all[r], joined = joined[:n:n], joined[n:]
	}
	return modeltext.Compare(all)
}

// strategyBytes encodes the strategy of cfg and all other settings that must be equal on all ranks.
func strategyBytes(cfg Config) []byte {
	text := string(cfg.Strategy)
	if c, err := cfg.chain(); err == nil && c != nil {
		text += " (" + c.String() + ")"
	}
	if cfg.ClipNorm > 0 {
		text += fmt.Sprintf(", clip-norm %v", cfg.ClipNorm)
	}
	if cfg.skips() {
		text += ", steps skipped that are not finite"
	}
	if cfg.Accumulation > 1 {
		text += fmt.Sprintf(", accumulation %d", cfg.Accumulation)
	}
	if cfg.Strategy == PartialUpdate {
		text += fmt.Sprintf(", partitions %d", cfg.partitions())
	}
	if cfg.LimitSum {
		text += ", bound-sum"
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(text)) // never fails
	out := binary.LittleEndian.AppendUint64(make([]byte, 0, agreedBytes), hash.Sum64())
	out = append(out, text[:min(len(text), agreedBytes-len(out))]...)
	return append(out, make([]byte, agreedBytes-len(out))...)
}

func strategyText(told []byte) string {
	return string(bytes.TrimRight(told[8:agreedBytes], "\x00"))
}
