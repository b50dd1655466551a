package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/train"
)

// clickSettings is a flag with settings of the click rule: NAME=X,….
type clickSettings map[string]float64

// Set parses and validates the settings.
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

// String returns text that Set accepts.
func (c *clickSettings) String() string { return cli.Pairs(*c, "=", ",") }

// Type returns the type in help texts.
func (c *clickSettings) Type() string { return "settings" }
