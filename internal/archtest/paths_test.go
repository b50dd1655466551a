package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// settingPath is how a setting's path looks, in one of the groups.
var settingPath = regexp.MustCompile(`^(training|data|checkpoint|job|exchange|tuning|servers|network|output)\.[a-z][a-z0-9-]*$`)

// noSettings are texts that look like paths of settings and are none: names of parameters.
const noSettings = " output.weight output.bias "

// Every path of a setting that the program speaks of is a row's: an error that names another would send people to look for
// what there is not.
func TestPathsHaveRows(t *testing.T) {
	rows, consts := map[string]bool{}, map[string]string{}
	files := source(t)
	each := func(visit func(f file, n ast.Node)) {
		for _, f := range files {
			if !f.test() {
				ast.Inspect(f.ast, func(n ast.Node) bool { visit(f, n); return true })
			}
		}
	}
	each(func(f file, n ast.Node) {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
			for i, name := range v.Names {
				consts[f.pkg+" "+name.Name] = pathIn(v.Values[i])
			}
		}
	})
	each(func(f file, n ast.Node) {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		key, ok := kv.Key.(*ast.Ident)
		if !ok || key.Name != "Path" {
			return
		}
		if name, ok := kv.Value.(*ast.Ident); ok {
			rows[consts[f.pkg+" "+name.Name]] = true
		}
		rows[pathIn(kv.Value)] = true
	})
	if len(rows) < 60 {
		t.Fatalf("only %d rows were found", len(rows))
	}
	each(func(f file, n ast.Node) {
		e, ok := n.(ast.Expr)
		if !ok || f.path == "internal/setting/former.go" { // names of earlier versions
			return
		}
		if p := pathIn(e); p != "" && !rows[p] && !strings.Contains(noSettings, " "+p+" ") {
			t.Errorf("%s names the setting %s, of which there is no row", f.fset.Position(n.Pos()), p)
		}
	})
}

// pathIn is the path that an expression is; "" of others.
func pathIn(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil || !settingPath.MatchString(text) {
		return ""
	}
	return text
}
