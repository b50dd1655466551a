package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/train"
)

// clickSettings is a flag: settings of the click rule, as name=value,….
type clickSettings map[string]float64

// Set reads them, and refuses those that the rule does.
func (c *clickSettings) Set(text string) error {
	out := clickSettings{}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		v, err := strconv.ParseFloat(value, 64)
		if _, again := out[name]; err != nil || again {
			return fmt.Errorf("%q: want NAME=X, each name once", part)
		}
		out[name] = v
	}
	*c = out
	_, err := schema.Rule{Name: train.OptimizerClick, LR: 1, Settings: out}.Rows()
	return err
}

// String writes what Set reads.
func (c *clickSettings) String() string { return cli.Pairs(*c, "=", ",") }

// Type is the flag's kind in help texts.
func (c *clickSettings) Type() string { return "settings" }
