package onnx

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/dirlock"
)

const (
	irVersion = 8 // that of opset 17
	opset     = 17
	page      = 4096 // values in a file of their own begin at multiples, so that they can be mapped
)

// size is how many bytes the weights have.
func (g *Graph) size() int64 {
	n := int64(0)
	for _, c := range g.constants {
		n += c.bytes()
	}
	return n
}

// External says that the weights are to lie in a file of their own.
func (g *Graph) External() bool {
	limit := g.cfg.External
	if limit == 0 {
		limit = defaultExternal
	}
	return g.size() >= limit
}

// WriteFile writes the graph to a file, and before that its weights to another one beside it,
// path.data, if they are too many: see Config.External. Files appear whole or not at all.
func (g *Graph) WriteFile(path string) error {
	data := path + ".data"
	constants := slices.Clone(g.constants)
	if g.External() {
		end := int64(0)
		for i := range constants {
			if c := &constants[i]; c.bytes() >= page { // small ones stay with the graph
				c.at = (end + page - 1) / page * page
				end = c.at + c.bytes()
			}
		}
		if err := dirlock.WriteFile(data, func(w io.Writer) error { return writeApart(w, constants) }); err != nil {
			return err
		}
	}
	return dirlock.WriteFile(path, func(w io.Writer) error { return g.write(w, constants, filepath.Base(data)) })
}

// Write writes the graph with all its weights. It is an error of more of them than the format has
// room for: use WriteFile.
func (g *Graph) Write(w io.Writer) error {
	if g.size() > maxInline {
		return fmt.Errorf("onnx: weights of %d bytes: a graph has room for %d, WriteFile puts more in a file of their own", g.size(), int64(maxInline))
	}
	return g.write(w, g.constants, "")
}

// writeApart writes the values that lie outside the graph.
func writeApart(w io.Writer, constants []constant) error {
	out, at := bufio.NewWriterSize(w, 1<<20), int64(0)
	for _, c := range constants {
		if c.at < 0 {
			continue
		}
		_, _ = out.Write(make([]byte, c.at-at)) // Flush has the fault
		if err := c.write(out); err != nil {
			return err
		}
		at = c.at + c.bytes()
	}
	return out.Flush()
}

// write writes the ModelProto. A message begins with its length: those of weights are known, so
// that they go to the file piece by piece, and are never held a second time.
func (g *Graph) write(w io.Writer, constants []constant, data string) error {
	before, after, heads := g.graph(constants, data)
	size := int64(len(before) + len(after))
	for i, h := range heads {
		size += int64(len(h))
		if constants[i].at < 0 {
			size += constants[i].bytes()
		}
	}
	var m message
	m.number(1, irVersion)
	m.text(2, "ringo")
	m.head(7, size)
	out := bufio.NewWriterSize(w, 1<<20)
	_, _ = out.Write(m) // Flush has the fault
	_, _ = out.Write(before)
	for i, c := range constants {
		_, _ = out.Write(heads[i])
		if c.at >= 0 {
			continue
		}
		if err := c.write(out); err != nil {
			return err
		}
	}
	_, _ = out.Write(after)
	_, _ = out.Write(g.tail())
	if err := out.Flush(); err != nil {
		return fmt.Errorf("onnx: %w", err)
	}
	return nil
}

// graph is the GraphProto: what comes before its constants and after them, and each constant up to
// its values.
func (g *Graph) graph(constants []constant, data string) (before, after message, heads []message) {
	for _, o := range g.operators {
		before.inner(1, o.encode())
	}
	before.text(2, g.name)
	for _, c := range constants {
		m := c.encode(data)
		n := int64(len(m))
		if c.at < 0 {
			n += c.bytes()
		}
		var h message
		h.head(5, n)
		heads = append(heads, append(h, m...))
	}
	for _, p := range g.inputs {
		after.inner(11, p.encode())
	}
	for _, p := range g.outputs {
		after.inner(12, p.encode())
	}
	return before, after, heads
}

// tail is what follows the graph.
func (g *Graph) tail() (m message) {
	var set message
	set.text(1, "")
	set.number(2, opset)
	m.inner(8, set)
	for _, key := range slices.Sorted(maps.Keys(g.cfg.About)) {
		m.inner(14, entry(key, g.cfg.About[key]))
	}
	return m
}
