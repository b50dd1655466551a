package compress

import (
	"errors"
	"fmt"
	"strings"
)

// Chain is an immutable list of compatible stages.
type Chain struct {
	transforms []Transform
	selector   Selector
	quantiser  Quantiser
}

// NewChain checks and joins stages: any number of transforms, then at most one Selector, then at
// most one Quantiser. Without a Quantiser values are float32. It reports every invalid setting, and
// for stages in an impossible order both names and the reason.
func NewChain(stages ...Stage) (*Chain, error) {
	c := &Chain{}
	var errs []error
	for i, s := range stages {
		if s == nil {
			errs = append(errs, fmt.Errorf("stage %d is nil", i))
			continue
		}
		errs = append(errs, s.Validate(), c.add(s))
	}
	for _, t := range c.transforms {
		if m, ok := t.(Momentum); ok && c.selector == nil {
			after := Quantiser(FP32{})
			if c.quantiser != nil {
				after = c.quantiser
			}
			errs = append(errs, fmt.Errorf("%s before %s: momentum correction makes up for entries that wait, and %s sends all: add a selection or leave momentum to the optimizer",
				m.Name(), after.Name(), after.Name()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if c.quantiser == nil {
		c.quantiser = FP32{}
	}
	return c, nil
}

// add appends a stage, or returns the reason why it cannot follow the stages before.
func (c *Chain) add(s Stage) error {
	switch s := s.(type) {
	case Quantiser:
		if c.quantiser != nil {
			return fmt.Errorf("%s after %s: values are stored by one code only", s.Name(), c.quantiser.Name())
		}
		c.quantiser = s
	case Selector:
		if c.quantiser != nil {
			return fmt.Errorf("%s after %s: a selection compares numbers, not codes: put it first", s.Name(), c.quantiser.Name())
		}
		if c.selector != nil {
			return fmt.Errorf("%s after %s: a selection from a selection would need a residual of its own: choose one", s.Name(), c.selector.Name())
		}
		c.selector = s
	case Transform:
		return c.addTransform(s)
	default:
		return fmt.Errorf("%s is neither a Transform nor a Selector nor a Quantiser", s.Name())
	}
	return nil
}

func (c *Chain) addTransform(s Transform) error {
	if c.quantiser != nil {
		return fmt.Errorf("%s after %s: it changes numbers, not codes: put it first", s.Name(), c.quantiser.Name())
	}
	if c.selector != nil {
		return fmt.Errorf("%s after %s: what it changed of the selected values would be lost: put it first", s.Name(), c.selector.Name())
	}
	if m, ok := s.(Momentum); ok {
		for _, t := range c.transforms {
			if other, ok := t.(Momentum); ok {
				return fmt.Errorf("%s after %s: momentum is corrected once", m.Name(), other.Name())
			}
		}
	}
	c.transforms = append(c.transforms, s)
	return nil
}

// String returns the stages' names: "clip(1) > dlgs(0.01, every 16, corrected) > fp16".
func (c *Chain) String() string {
	var names []string
	for _, t := range c.transforms {
		names = append(names, t.Name())
	}
	if c.selector != nil {
		names = append(names, c.selector.Name())
	}
	return strings.Join(append(names, c.quantiser.Name()), " > ")
}

// Identity reports whether the chain sends all values unchanged.
func (c *Chain) Identity() bool {
	return len(c.transforms) == 0 && c.selector == nil && c.quantiser.Code() == CodeFP32
}

// Uncoded returns the chain with FP32 as quantiser, for a reducer that itself stores fewer bits.
func (c *Chain) Uncoded() *Chain {
	return &Chain{transforms: c.transforms, selector: c.selector, quantiser: FP32{}}
}

// Relative returns the chain with DLGS, which selects about this share of the values (0 to 1),
// instead of Threshold. The number of values that Threshold sends, and so its cost, depends on the
// gradients; a DLGS step that reuses its threshold costs the same at the same share. Other chains,
// and a share of 0, are returned unchanged, with ok false.
func (c *Chain) Relative(share float64) (out *Chain, ok bool) {
	if _, ok := c.selector.(Threshold); !ok || !(share > 0 && share <= 1) {
		return c, false
	}
	return &Chain{transforms: c.transforms, selector: DLGS{Ratio: share, Rule: RulePaper}, quantiser: c.quantiser}, true
}

// Sparse reports whether the chain selects entries.
func (c *Chain) Sparse() bool { return c.selector != nil }

// Reuses reports whether later steps reuse a step's threshold (DLGS).
func (c *Chain) Reuses() bool { return c.Rule() != "" }

// Rule returns the rule of a chain that reuses thresholds (DLGS), else "".
func (c *Chain) Rule() Rule {
	if d, ok := c.selector.(DLGS); ok {
		return d.rule()
	}
	return ""
}

// Feedback reports whether the chain retains unsent values.
func (c *Chain) Feedback() bool { return c.selector != nil || c.quantiser.Feedback() }

// Quantiser is the chain's last stage.
func (c *Chain) Quantiser() Quantiser { return c.quantiser }
