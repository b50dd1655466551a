package nn

import "fmt"

// IndexError reports an id that is not a row of an embedding, or of Gather's operand.
type IndexError struct {
	Name string // the embedding's parameter, or "gather"
	At   int    // index of the id in the argument
	ID   int32
	Rows int
}

// Error returns a single line.
func (e *IndexError) Error() string {
	return fmt.Sprintf("nn: %s: id %d of the batch is %d: want 0 to %d", e.Name, e.At, e.ID, e.Rows-1)
}

func checkIDs(name string, ids []int32, rows int) {
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			panic(&IndexError{Name: name, At: i, ID: id, Rows: rows})
		}
	}
}

// embeddingOp looks up rows of a dense parameter.
type embeddingOp struct {
	output
	ids []int32
	p   *Param
	job passJob[embeddingOp]
}

func (o *embeddingOp) operands() ([4]*Tensor, [4]*Param) { return [4]*Tensor{}, [4]*Param{o.p} }

// Embedding returns the rows ids of p, [rows, dim]: the result is [len(ids), dim]. The caller must
// not change ids before Backward ends. The gradient is dense: clearing it costs O(rows·dim) a step.
// It panics with an *IndexError if an id is not a row.
func (t *Tape) Embedding(ids []int32, p *Param) *Tensor {
	Layer{W: p}.want(len(p.Shape) == 2, "embedding", "a parameter [rows, dim]", p.Shape...)
	Layer{W: p}.want(len(ids) > 0, "embedding", "at least one id", len(ids))
	checkIDs(p.Name, ids, p.Shape[0])
	o := record[embeddingOp](t)
	o.ids, o.p = ids, p
	y := t.begin(o, len(ids), p.Shape[1])
	o.job.each(t, o, (*embeddingOp).gather, len(ids), gatherRows)
	return y
}

// gatherRows is the number of ids in a part.
const gatherRows = 64

func (o *embeddingOp) gather(w *worker, _, lo, hi int) {
	dim := o.p.Shape[1]
	w.k.Lookup(o.y.Data[lo*dim:hi*dim], o.p.Data, o.ids[lo:hi], dim)
}

// scatterColumns is the number of columns in a part of backward: all rows of a column are in one
// part, added in order of occurrence.
const scatterColumns = 128

func (o *embeddingOp) backward(t *Tape) {
	if !o.p.touched {
		t.elementwise(zeros, o.p.Grad, o.p.Grad, o.p.Grad)
	}
	o.job.each(t, o, (*embeddingOp).scatter, o.p.Shape[1], scatterColumns)
}

func (o *embeddingOp) scatter(w *worker, _, lo, hi int) {
	dim := o.p.Shape[1]
	for r, id := range o.ids {
		w.k.Add(o.p.Grad[int(id)*dim+lo:int(id)*dim+hi], o.y.grad[r*dim+lo:r*dim+hi])
	}
}
