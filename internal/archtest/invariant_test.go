package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An invariant that much hangs on has a label where it is stated, in a comment of the source:
//
//	invariant[plan-order]: buckets come out in plan order
//
// The tests that hold it name it in their comments, without the colon. So who changes what it says finds the tests, and who
// finds a test broken finds the sentence.
var label = regexp.MustCompile(`invariant\[([a-z]+(?:-[a-z]+)*)\](:?)`)

// invariants are labels with where they are stated and which tests name them.
type invariants struct{ stated, named map[string][]string }

// read takes what a file's comments say.
func (v invariants) read(path string, test bool, f *ast.File) {
	for _, g := range f.Comments {
		for _, m := range label.FindAllStringSubmatch(g.Text(), -1) {
			if stated := m[2] == ":"; stated && !test {
				v.stated[m[1]] = append(v.stated[m[1]], path)
			}
		}
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !test || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		for _, m := range label.FindAllStringSubmatch(fn.Doc.Text(), -1) {
			v.named[m[1]] = append(v.named[m[1]], path+": "+fn.Name.Name)
		}
	}
}

// faults are the labels that are not stated once and named by a test.
func (v invariants) faults() (out []string) {
	all := maps.Clone(v.stated)
	maps.Copy(all, v.named)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch stated, named := v.stated[name], v.named[name]; {
		case len(stated) == 0:
			out = append(out, fmt.Sprintf("invariant[%s] is named by %s, but stated nowhere", name, strings.Join(named, ", ")))
		case len(stated) > 1:
			out = append(out, fmt.Sprintf("invariant[%s] is stated in %s: want one place", name, strings.Join(stated, ", ")))
		case len(named) == 0:
			out = append(out, fmt.Sprintf("invariant[%s] is stated in %s, but no test's comment names it", name, stated[0]))
		}
	}
	return out
}

// Every invariant with a label is held by a test.
func TestInvariantsAreTested(t *testing.T) {
	all := invariants{map[string][]string{}, map[string][]string{}}
	for _, f := range source(t) {
		if f.pkg != "internal/archtest" {
			all.read(f.path, f.test(), f.ast)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all.stated)) {
		t.Logf("%s: %s\n\t%s", name, strings.Join(all.stated[name], ", "), strings.Join(all.named[name], "\n\t"))
	}
	for _, fault := range all.faults() {
		t.Error(fault)
	}
}

func TestInvariantsAreFound(t *testing.T) {
	all := invariants{map[string][]string{}, map[string][]string{}}
	all.read("a.go", false, parsed(t, "package a\n\n// F does it.\n// invariant[held]: it\n// holds. invariant[untested]: x.\nfunc F() {}\n\n// invariant[twice]: y.\n"))
	all.read("b.go", false, parsed(t, "package a\n\nvar x = 1 // invariant[twice]: z; see invariant[held]\n"))
	all.read("a_test.go", true, parsed(t, "package a\n\n// It holds invariant[held].\nfunc TestF() {}\n\n// invariant[unknown] and invariant[twice]\nfunc FuzzF() {}\n\n// invariant[untested]\nfunc help() {}\n"))
	want := []string{
		"invariant[twice] is stated in a.go, b.go: want one place",
		"invariant[unknown] is named by a_test.go: FuzzF, but stated nowhere",
		"invariant[untested] is stated in a.go, but no test's comment names it",
	}
	if got := all.faults(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func parsed(t *testing.T, text string) *ast.File {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
