package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/cli"
)

// processes are the processes of a role, as in a flag: COUNT, or COUNTxPROCESSORS with the
// processors of each, separated by commas.
type processes struct {
	groups []alike
	sized  bool // some groups have explicit processors
}

// alike is a group of processes with equal processors.
type alike struct {
	count int
	cores float64
}

func some(n int) processes { return processes{groups: []alike{{n, 1}}} }

// Set reads a flag's value.
func (p *processes) Set(text string) error {
	var out processes
	for part := range strings.SplitSeq(text, ",") {
		count, cores, sized := strings.Cut(part, "x")
		n, err := strconv.Atoi(count)
		each := 1.0
		if sized && err == nil {
			each, err = strconv.ParseFloat(cores, 64)
			out.sized = true
		}
		if err != nil || n < 0 || n > mostRanks || !(each > 0) || math.IsInf(each, 0) {
			return fmt.Errorf("want a number, such as 4, or with processors of each, such as 4x0.5 or 1x16,2x8")
		}
		out.groups = append(out.groups, alike{n, each})
	}
	*p = out
	return nil
}

// Type returns the value's type in help texts.
func (p *processes) Type() string { return "processes" }

// String returns the value in the flag's syntax.
func (p *processes) String() string {
	var parts []string
	for _, g := range p.groups {
		if text := strconv.Itoa(g.count); p.sized {
			parts = append(parts, fmt.Sprintf("%sx%v", text, g.cores))
		} else {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ",")
}

func (p *processes) count() (n int) {
	for _, g := range p.groups {
		n += g.count
	}
	return n
}

func (p *processes) cores() (out []float64) {
	for _, g := range p.groups {
		out = append(out, slices.Repeat([]float64{g.cores}, g.count)...)
	}
	return out
}

func (p *processes) about(noun string) string {
	var parts []string
	for _, g := range p.groups {
		text := cli.Counted(g.count, noun) + " with " + strconv.FormatFloat(g.cores, 'g', 4, 64) + " processor"
		if g.cores != 1 {
			text += "s"
		}
		if g.count > 1 {
			text += " each"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
