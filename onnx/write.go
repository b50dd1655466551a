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
	irVersion = 8 // version of opset 17
	opset     = 17
	mlDomain  = "ai.onnx.ml" // operators of the standard for words
	mlOpset   = 3            // version that came with opset 17
	page      = 4096         // alignment of external values, for mapping
)

// size is the size of the weights in bytes.
func (g *Graph) size() int64 {
	n := int64(0)
	for _, c := range g.constants {
		n += c.bytes()
	}
	return n
}

// External reports whether the weights are in a separate file.
func (g *Graph) External() bool {
	limit := g.cfg.External
	if limit == 0 {
		limit = defaultExternal
	}
	return g.size() >= limit
}

// WriteFile writes the graph to a file, preceded by its weights to a second file, path.data, if
// they are too large: see Config.External. Files appear atomically.
func (g *Graph) WriteFile(path string) error {
	data := path + ".data"
	constants := slices.Clone(g.constants)
	if g.External() {
		end := int64(0)
		for i := range constants {
			if c := &constants[i]; c.bytes() >= page { // small ones stay in the graph
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

// Write writes the graph with all its weights. Weights above the format's limit are an error: use
// WriteFile.
func (g *Graph) Write(w io.Writer) error {
	if g.size() > maxInline {
		return fmt.Errorf("onnx: weights of %d bytes: a graph has room for %d, WriteFile puts more in a file of their own", g.size(), int64(maxInline))
	}
	return g.write(w, g.constants, "")
}

// writeApart writes those values that are not in the graph's file.
func writeApart(w io.Writer, constants []constant) error {
	out, at := bufio.NewWriterSize(w, 1<<20), int64(0)
	for _, c := range constants {
		if c.at < 0 {
			continue
		}
		_, _ = out.Write(make([]byte, c.at-at)) // Flush returns the error
		if err := c.write(out); err != nil {
			return err
		}
		at = c.at + c.bytes()
	}
	return out.Flush()
}

// write writes the ModelProto. A message begins with its length, which is known for weights, so
// that they are streamed to the file without a second copy.
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
	_, _ = out.Write(m) // Flush returns the error
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

// graph returns the GraphProto before and after its constants, and each constant up to its values.
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

// tail is the end of the message, after the graph.
func (g *Graph) tail() (m message) {
	sets := map[string]int64{"": opset}
	for _, o := range g.operators {
		if o.domain != "" {
			sets[o.domain] = mlOpset
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(sets)) {
		var set message
		set.text(1, domain)
		set.number(2, sets[domain])
		m.inner(8, set)
	}
	for _, key := range slices.Sorted(maps.Keys(g.cfg.About)) {
		m.inner(14, entry(key, g.cfg.About[key]))
	}
	return m
}
