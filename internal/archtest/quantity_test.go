package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ownForms are forms of a quantity in a format string, with the function of internal/quantity for
// each. A verb with a width is a column of a table, whose unit is in its head.
var ownForms = []struct {
	form *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`%(\.\d+)?[geGE]`), "Float, FloatDigits or Exact"},
	{regexp.MustCompile(`%(\.\d+f|v|d) ?(B|[kKMGT]i?B)\b`), "Bytes or Traffic"},
	{regexp.MustCompile(`%\.\d+f ?(ns|µs|us|ms)\b`), "Milliseconds or Duration"},
	{regexp.MustCompile(`%(\.\d+f|v) ?(s|seconds)( |$|[.,;:)])`), "Duration or Seconds"},
	{regexp.MustCompile(`%(\.[013-9]f|v|d) ?%%`), "Percent"},
}

// wholeUnits are files whose text is a constant of a whole number of units, a number of a file or a
// limit that a user writes in that unit.
var wholeUnits = map[string]bool{
	"collective/choose.go": true, "internal/data/images/tree.go": true, "internal/usage/system.go": true, "internal/server/server.go": true,
	"internal/server/settings.go": true, "internal/server/rows/reserve_linux.go": true,
}

// TestQuantitiesHaveOneForm finds texts for users that write a quantity without internal/quantity.
func TestQuantitiesHaveOneForm(t *testing.T) {
	for _, f := range source(t) {
		if f.test() || f.pkg == lowest || wholeUnits[f.path] || matches([]string{"bench/...", "examples/...", "cmd/ringo/internal/bench/..."}, f.pkg) ||
			strings.HasSuffix(f.pkg, "test") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if n.Kind != token.STRING || err != nil {
					break
				}
				for _, own := range ownForms {
					if m := own.form.FindString(text); m != "" {
						t.Errorf("%v: %q in %.80q: write it by quantity.%s", f.fset.Position(n.Pos()), m, text, own.by)
					}
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Round" && len(n.Args) == 1 && roundsTime(n.Args[0]) {
					t.Errorf("%v: a rounded time: write it by quantity.Duration", f.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// roundsTime reports whether a unit is one of package time, such as 100 * time.Millisecond.
func roundsTime(unit ast.Expr) bool {
	found := false
	ast.Inspect(unit, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == "time" {
			found = true
		}
		return true
	})
	return found
}
