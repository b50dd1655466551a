package collective

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/transport/mem"
)

// The lines of a table cover every size once, and say what is used there.
func TestTable(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		for _, name := range []string{"", Ring, Naive} {
			g, err := New(mem.New(n)[0], Config{Algorithm: name})
			if err != nil {
				t.Fatal(err)
			}
			checkTable(t, g)
			g.Close()
		}
	}
}

func checkTable(t *testing.T, g *Group) {
	t.Helper()
	table := g.Table()
	for k := range kinds {
		var lines []Choice
		for _, c := range table {
			if c.Op == k.String() {
				lines = append(lines, c)
			}
		}
		next := 0
		for i, c := range lines {
			last := i == len(lines)-1
			if c.From != next || (c.To == 0) != last || !last && c.Algorithm == lines[i+1].Algorithm {
				t.Errorf("line %d of %v: %+v", i, k, lines)
			}
			next = c.To
		}
		for _, bytes := range []int{0, 1, 100, 8 << 10, 8<<10 + 1, 64 << 10, 64<<10 + 1, 128 << 10, 128<<10 + 1, 1 << 30} {
			i := slices.IndexFunc(lines, func(c Choice) bool { return bytes >= c.From && (c.To == 0 || bytes < c.To) })
			if i < 0 || lines[i].Algorithm != g.Choice(k.String(), bytes) || lines[i].Algorithm != g.method(k, bytes).String() {
				t.Errorf("%v of %d bytes is not in %+v", k, bytes, lines)
			}
		}
	}
	if g.Choice("allsum", 1) != "" {
		t.Error("there is a choice for what is no operation")
	}
}
