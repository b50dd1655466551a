package nn

// Work is the cost of a pass over operations, computed from shapes only, to compare layers without
// running them.
type Work struct {
	// FLOPs are the multiplications and additions of matrix products, direct convolutions and
	// attention. They grow with the batch.
	FLOPs float64
	// Activations are the bytes read or written of intermediate values and their gradients. They
	// grow with the batch.
	Activations float64
	// Weights are the bytes read or written of parameters and their gradients, for recurrent
	// weights at every step. They do not grow with the batch.
	Weights float64
}

// Add adds v to w.
func (w *Work) Add(v Work) {
	w.FLOPs += v.FLOPs
	w.Activations += v.Activations
	w.Weights += v.Weights
}

// NewOutline makes a registry for describing a model: parameters have no values and use no memory,
// so that a model of gigabytes is described in milliseconds. After Arrange, Slots and Work are as
// for NewParams, and there are no arenas. Only the dry run of Arrange may use its model.
func NewOutline() *Params { return &Params{outline: true} }

// Work returns the cost of a pass over the batch that Arrange was called with: of the whole forward
// pass, and for each parameter, in the order of gradients, of the part of backward from the
// gradient before to the parameter's own. backward is nil before Arrange.
func (ps *Params) Work() (forward Work, backward []Work) { return ps.forward, ps.backward }

// workOf returns the cost of an operation forward and backward. Backward moves twice the data of
// forward: two products, or two gradients.
func workOf(o op) (forward, backward Work) {
	xs, ps := o.operands()
	y := o.result()
	wanted := 1.0 // gradients of operands that a product computes
	forward.Activations = float64(y.Len())
	for _, x := range xs {
		if x == nil {
			continue
		}
		forward.Activations += float64(x.Len())
		if x.needs {
			wanted = 2
		}
	}
	rows := y.Len()
	if n := len(y.Shape); n > 0 {
		rows /= y.Shape[n-1]
	}
	reads := 1 // reads of each parameter
	switch o := o.(type) {
	case *embeddingOp: // reads and writes rows; clears its whole gradient
		moved := 8 * float64(y.Len())
		return Work{Activations: moved}, Work{Activations: moved, Weights: 4 * float64(len(o.p.Data))}
	case *attentionOp:
		forward.FLOPs = 2 * float64(y.Len()*o.steps)
		wanted = 2.5 // see Attention
	case *convOp:
		rows = o.rows() // including values that max-pooling drops
		forward.Activations += float64(rows*o.out - y.Len())
	case *parameterOp: // shares memory; adds its gradient to the parameter's
		moved := 4 * float64(y.Len())
		return Work{}, Work{Activations: moved, Weights: moved}
	case wideOp:
		all, _ := o.allOperands()
		for _, x := range all {
			forward.Activations += float64(x.Len())
		}
	case *matMulOp:
		products := 2 * float64(o.batch) * float64(o.m) * float64(o.n) * float64(o.k)
		forward.FLOPs, wanted = products, 0
		for _, x := range xs {
			if x != nil && x.needs {
				wanted++
			}
		}
	case *gruOp:
		reads = o.steps
		forward.Activations += float64(12 * y.Len()) // two sums of three gates, written and read
	case *lstmOp:
		reads = o.steps
		forward.Activations += float64(8 * y.Len()) // four gates, written and read
	}
	forward.weigh(ps, rows, reads)
	forward.Activations *= 4
	forward.Weights *= 4
	return forward, Work{FLOPs: wanted * forward.FLOPs, Activations: 2 * forward.Activations, Weights: 2 * forward.Weights}
}

// weigh adds the products of rows with the parameters ps. The first parameter is read once, and the
// recurrent ones after it `reads` times.
func (w *Work) weigh(ps [4]*Param, rows, reads int) {
	for i, p := range ps {
		if p == nil || len(p.Shape) < 2 {
			continue
		}
		w.FLOPs += 2 * float64(rows) * float64(len(p.Data))
		if i == 0 {
			w.Weights += float64(len(p.Data))
		} else {
			w.Weights += float64(reads * len(p.Data))
		}
	}
}
