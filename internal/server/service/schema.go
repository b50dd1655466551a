package service

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/internal/modeltext"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/ps/schema"
)

// learnSchema compares the schemas; without one the server takes the first trainer's.
func (c *conn) learnSchema() error {
	if c.s.ready() == nil {
		sc, err := c.askSchema()
		if err != nil {
			return err
		}
		if err := c.s.open(sc, fmt.Sprintf("trainer %d", c.hello.Trainer)); err != nil {
			return c.failed(err)
		}
	}
	if c.s.hash == hex.EncodeToString(c.hello.Hash[:]) {
		return nil
	}
	sc, err := c.askSchema()
	if err != nil {
		return err
	}
	return c.mismatch("trainer %d has other tables than %s: %s: all ranks must build the same model with the same settings",
		c.hello.Trainer, c.s.from, modeltext.Difference(textOf(sc), c.s.tables, "on "+c.s.from))
}

func (c *conn) askSchema() (sc schema.Schema, err error) {
	c.out.send(frameOf(message.TypeNeedSchema, nil))
	b, err := c.expect(message.TypeSchema)
	if err != nil {
		return sc, err
	}
	if err := json.Unmarshal(b, &sc); err != nil {
		return sc, c.mismatch("the schema of trainer %d: %v", c.hello.Trainer, err)
	}
	if err := sc.Validate(); err != nil {
		return sc, c.mismatch("the schema of trainer %d: %v", c.hello.Trainer, err)
	}
	if sc.Hash() != hex.EncodeToString(c.hello.Hash[:]) {
		return sc, c.mismatch("the schema of trainer %d has the hash %.16s…, it said %x…", c.hello.Trainer, sc.Hash(), c.hello.Hash[:8])
	}
	return sc, nil
}

func textOf(sc schema.Schema) (out modeltext.Text) {
	rule := func(r schema.Rule) string {
		text := fmt.Sprintf("rule %s at rate %v", r.Name, r.LR)
		for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
			text += fmt.Sprintf(", %s %v", name, r.Settings[name])
		}
		return text
	}
	for _, t := range sc.Sparse {
		about := fmt.Sprintf("rows of %d weights, first %s %v with seed %d, %s", t.Dim, cmp.Or(t.Init.Name, "zeros"), t.Init.Value, t.Seed, rule(t.Rule))
		if t.Admission != "" {
			about += ", admission " + t.Admission
		}
		out.Table(t.Name, about)
	}
	for _, d := range sc.Dense {
		out.Array(d.Name, fmt.Sprintf("%d values, %s", d.Len, rule(d.Rule)))
	}
	return out
}
