package layout_test

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/layout"
)

// A layout says which columns are what; those that are alike are said once.
func ExampleRead() {
	l, err := layout.Read("shop.yaml", strings.NewReader(`
separator: comma
header: true
columns:
  - {name: clicked, kind: label}
  - {name: count, times: 2, kind: number, transform: log}
  - {name: item, kind: category}
  - {name: history, kind: sequence, separator: "|", table: item}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range l.Columns {
		fmt.Printf("%s: %s %q\n", c.Name, c.Kind, c.Table)
	}
	// Output:
	// clicked: label ""
	// count1: number ""
	// count2: number ""
	// item: category "item"
	// history: sequence "item"
}
