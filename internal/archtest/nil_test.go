package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A nil pointer in an interface is not nil: who asks the interface calls a method of nothing. It gets there where
// a call gives a pointer and an error, and the pointer goes straight into an interface:
//
//	var s Store
//	s, err = OpenDisk(dir) // s is not nil where err is not
//	return OpenDisk(dir)   // of a function that returns (Store, error)
//	return disk, err       // likewise
//
// The linters that are well kept (staticcheck, nilness) do not look for it.
func TestNoNilPointersInInterfaces(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the types of the whole module")
	}
	for _, fault := range nilsInInterfaces(t, "./...") {
		t.Error(fault)
	}
}

// The check finds what it is there for.
func TestNilPointersAreFound(t *testing.T) {
	const text = `package p
import ("io"; "os"; "bytes")
type both interface { io.Reader; io.Closer }
func open() (*os.File, error) { return nil, nil }
func pair() (*bytes.Buffer, int) { return nil, 0 }
func assigned() { var r io.Reader; var err error; r, err = open(); _, _ = r, err } // found
func declared() { var r, err = open(); _, _ = r, err }
func typed() { var r, s io.Reader; r, s = new(bytes.Buffer), new(bytes.Buffer); _, _ = r, s }
func returned() (both, error) { return open() } // found
func inside() { _ = func() (io.Reader, error) { return open() } } // found
func given(r io.Reader, err error) {}
func passed() { given(open()) } // found
func noError() { var r io.Reader; var n int; r, n = pair(); _, _ = r, n }
func together() (io.Reader, error) { f, err := open(); return f, err } // found
func right() (io.Reader, error) { f, err := open(); if err != nil { return nil, err }; return f, nil }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	info := newInfo()
	if root, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		build.Default.GOROOT = strings.TrimSpace(string(root)) // a test built with -trimpath does not know it
	}
	c := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	if _, err := c.Check("p", fset, []*ast.File{f}, info); err != nil {
		t.Fatal(err)
	}
	got := map[int]bool{}
	for _, at := range straightIn(f, info) {
		got[fset.Position(at).Line] = true
	}
	for i, line := range strings.Split(text, "\n") {
		if want := strings.HasSuffix(line, "// found"); got[i+1] != want {
			t.Errorf("found %v, want %v: %s", got[i+1], want, line)
		}
	}
}

func newInfo() *types.Info {
	return &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
}

// nilsInInterfaces looks through the module's packages, with the compiler's types of what they import.
func nilsInInterfaces(t *testing.T, pattern string) (faults []string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,GoFiles,Export,DepOnly,ImportMap", pattern)
	cmd.Dir = filepath.Join("..", "..")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &errs)
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		DepOnly                 bool
		ImportMap               map[string]string
	}
	exports := map[string]string{}
	var ours []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/") {
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range ours {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := newInfo()
		c := types.Config{Importer: from, FakeImportC: true, Sizes: types.SizesFor("gc", "amd64")}
		if _, err := c.Check(p.ImportPath, fset, files, info); err != nil {
			t.Fatalf("%s: %v", p.ImportPath, err)
		}
		for _, f := range files {
			for _, at := range straightIn(f, info) {
				faults = append(faults, fset.Position(at).String()+": a pointer that may be nil goes into an interface, which is not nil then: look at the error first")
			}
		}
	}
	if len(ours) < 40 {
		t.Errorf("it has seen %d packages", len(ours))
	}
	return faults
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

func isPointer(t types.Type) bool {
	_, is := t.Underlying().(*types.Pointer)
	return is
}

// straightIn finds calls whose pointer, beside an error, goes straight into an interface.
func straightIn(f *ast.File, info *types.Info) (at []token.Pos) {
	look := func(call ast.Expr, to func(i int) types.Type) {
		tuple, ok := info.TypeOf(call).(*types.Tuple)
		if !ok || tuple.Len() < 2 || !isError(tuple.At(tuple.Len()-1).Type()) {
			return
		}
		for i := range tuple.Len() - 1 {
			t := to(i)
			if isPointer(tuple.At(i).Type()) && t != nil && types.IsInterface(t) {
				at = append(at, call.Pos())
			}
		}
	}
	of := func(tuple *types.Tuple) func(int) types.Type {
		return func(i int) types.Type { return tuple.At(min(i, tuple.Len()-1)).Type() }
	}
	var within []*types.Signature // of the functions around
	var visit func(n ast.Node) bool
	inside := func(s types.Type, body *ast.BlockStmt) {
		within = append(within, s.(*types.Signature))
		if body != nil {
			ast.Inspect(body, visit)
		}
		within = within[:len(within)-1]
	}
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			inside(info.Defs[n.Name].Type(), n.Body)
			return false
		case *ast.FuncLit:
			inside(info.TypeOf(n), n.Body)
			return false
		case *ast.AssignStmt:
			if len(n.Lhs) > 1 && len(n.Rhs) == 1 {
				look(n.Rhs[0], func(i int) types.Type {
					if id, ok := n.Lhs[i].(*ast.Ident); ok && id.Name == "_" {
						return nil
					}
					return info.TypeOf(n.Lhs[i])
				})
			}
		case *ast.ValueSpec:
			if n.Type != nil && len(n.Names) > 1 && len(n.Values) == 1 {
				look(n.Values[0], func(int) types.Type { return info.TypeOf(n.Type) })
			}
		case *ast.ReturnStmt:
			s := within[len(within)-1].Results()
			if len(n.Results) == 1 && s.Len() > 1 {
				look(n.Results[0], of(s))
			}
			if last := len(n.Results) - 1; last > 0 && isError(s.At(last).Type()) && !info.Types[n.Results[last]].IsNil() {
				for i, r := range n.Results[:last] {
					if isPointer(info.TypeOf(r)) && types.IsInterface(s.At(i).Type()) {
						at = append(at, r.Pos())
					}
				}
			}
		case *ast.CallExpr:
			if s, ok := info.TypeOf(n.Fun).(*types.Signature); ok && len(n.Args) == 1 && s.Params().Len() > 1 {
				look(n.Args[0], of(s.Params()))
			}
		}
		return true
	}
	ast.Inspect(f, visit)
	return at
}
