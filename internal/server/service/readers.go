package service

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/ringo-ml/ringo/internal/modeltext"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/ps/schema"
)

// maxReaders is the maximum number of a server's readers, each with the memory of a trainer's
// session.
const maxReaders = 64

// greetReader welcomes a connection that is not a trainer's. The reader's schema must have the same
// shapes and initial values of tables and arrays; update rules may differ.
func (c *conn) greetReader() error {
	if c.s.readers.Add(1) > maxReaders {
		return c.mismatch("%d readers are connected, which is the limit", maxReaders)
	}
	if c.s.ready() == nil {
		return c.mismatch("its tables are not open yet: readers connect after the trainers")
	}
	if cfg, h := &c.s.cfg, c.hello; h.Server != cfg.Index || h.Servers != cfg.Servers {
		return c.mismatch("a reader takes this for server %d of %d, it is %d of %d: give all servers in their order", h.Server, h.Servers, cfg.Index, cfg.Servers)
	}
	sc, err := c.askSchema()
	if err != nil {
		return err
	}
	if theirs, ours := contentsOf(sc), contentsOf(c.s.schema); !bytes.Equal(theirs, ours) {
		return c.mismatch("a reader has other tables than the trainers: %s", modeltext.Difference(theirs, ours, "on the servers"))
	}
	c.engine, c.limits = c.s.engine, c.s.limits
	c.out.send(frameOf(message.TypeWelcome, c.s.cfg.welcome(0).Append(nil)))
	return nil
}

// contentsOf describes the properties of tables that must be equal at a reader and the server.
func contentsOf(sc schema.Schema) (out modeltext.Text) {
	for _, t := range sc.Sparse {
		out.Table(t.Name, fmt.Sprintf("rows of %d weights, first %s %v with seed %d", t.Dim, cmp.Or(t.Init.Name, "zeros"), t.Init.Value, t.Seed))
	}
	for _, d := range sc.Dense {
		out.Array(d.Name, fmt.Sprintf("%d values", d.Len))
	}
	return out
}

// mayRead reports whether a reader may send a message: requests that change nothing.
func mayRead(t wire.Type, h message.Head) bool {
	return t == message.TypePullRows && h.At == message.Peek || t == message.TypePullDense
}
