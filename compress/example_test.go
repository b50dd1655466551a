package compress_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/optim"
)

// Two ranks exchange the largest quarter of their gradients; what is not sent is
// added to the gradients of the next step.
func Example() {
	chain, err := compress.NewChain(compress.Clip{Max: 10}, compress.TopK{Ratio: 0.25}, compress.FP16{})
	if err != nil {
		fmt.Println(err)
		return
	}
	params := []compress.Param{{Name: "weight", Lo: 0, Hi: 6}, {Name: "bias", Lo: 6, Hi: 8}}
	gradients := [2][]float32{{1, -20, 3, 0, 0, 0, 0.5, 2}, {0, 4, 0, 0, 0, 6, 0.5, 2}}
	sum := make([]float32, 8)
	for rank, grads := range gradients {
		c, err := chain.Bind(params, len(grads), nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		var sent, received compress.Sparse
		if err := c.Select(&sent, 0, grads); err != nil {
			fmt.Println(err)
			return
		}
		payload, err := c.Encode(nil, &sent)
		if err == nil {
			err = c.Decode(&received, payload) // as every other rank does
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		received.AddTo(sum)
		fmt.Printf("rank %d: %d bytes, keeps %v\n", rank, len(payload), c.Residual(0, 8))
	}
	fmt.Println(chain, "sums to", sum)
	// Output:
	// rank 0: 17 bytes, keeps [1 0 0 0 0 0 0.5 2]
	// rank 1: 17 bytes, keeps [0 0 0 0 0 0 0.5 2]
	// clip(10) > topk(0.25) > fp16 sums to [0 -6 3 0 0 6 0 0]
}

// random sends every entry with a chance of one in Of: a selector of one's own.
type random struct{ Of uint32 }

func (r random) Name() string { return fmt.Sprintf("random(1/%d)", r.Of) }

func (r random) Validate() error {
	if r.Of == 0 {
		return fmt.Errorf("random: one in 0")
	}
	return nil
}

func (r random) Bind(int) compress.Selection {
	return &chosen{r.Of, []optim.State{{Name: "steps", Data: make([]float32, 1)}}}
}

type chosen struct {
	of    uint32
	state []optim.State
}

func (c *chosen) Select(_ *compress.Workspace, s *compress.Sparse, base int, residual, grad []float32) {
	c.state[0].Data[0]++
	for i, g := range grad {
		residual[i] += g
		if (uint32(i)+uint32(c.state[0].Data[0]))*2654435761>>8%c.of == 0 || g != g {
			s.Append(base+i, residual[i])
			residual[i] = 0
		}
	}
}

func (c *chosen) Last() compress.Pick  { return compress.Pick{} }
func (c *chosen) State() []optim.State { return c.state }

// A chain takes stages from anywhere.
func Example_custom() {
	chain, err := compress.NewChain(random{Of: 3}, compress.BF16{})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := chain.Bind([]compress.Param{{Name: "weight", Lo: 0, Hi: 6}}, 6, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	total := make([]float32, 6)
	for range 100 {
		var s compress.Sparse
		if err := c.Select(&s, 0, []float32{1, 1, 1, 1, 1, 1}); err != nil {
			fmt.Println(err)
			return
		}
		s.AddTo(total)
	}
	for i, kept := range c.Residual(0, 6) {
		total[i] += kept
	}
	fmt.Println(chain, "sent and keeps", total)
	_, err = compress.NewChain(compress.FP16{}, random{Of: 3})
	fmt.Println(err)
	// Output:
	// random(1/3) > bf16 sent and keeps [100 100 100 100 100 100]
	// compress: random(1/3) after fp16: a selection compares numbers, not codes: put it first
}

// Between two exact selections the paper's rule sends all that reaches their threshold, which
// is more than was asked for while what is kept still grows; by default the threshold follows.
func ExampleDLGS() {
	for _, rule := range []compress.Rule{compress.RulePaper, compress.RuleCorrected} {
		chain, err := compress.NewChain(compress.DLGS{Ratio: 0.25, Every: 8, Rule: rule})
		if err != nil {
			fmt.Println(err)
			return
		}
		c, err := chain.Bind([]compress.Param{{Name: "weight", Lo: 0, Hi: 16}}, 16, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		var sent []int
		for range 8 {
			var s compress.Sparse
			if err := c.Select(&s, 0, []float32{16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}); err != nil {
				fmt.Println(err)
				return
			}
			sent = append(sent, s.Count())
		}
		fmt.Println(chain, "sends", sent)
	}
	// Output:
	// dlgs(0.25, every 8, paper) > fp32 sends [4 10 6 11 5 12 5 11]
	// dlgs(0.25, every 8, corrected) > fp32 sends [4 10 1 9 4 6 2 4]
}
