// Package archtest holds the layering of the module and its house rules as
// tests, each with the reason why.
package archtest

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ringo-ml/ringo"

// lowest is the package that every other may import: one form of a quantity serves all layers.
const lowest = "internal/quantity"

// forbidden are the edges that must not exist, by package path below the
// module's root. A trailing /... covers the package and all below it.
var forbidden = []struct {
	from, to []string
	why      string
}{
	{
		from: []string{"distopt", "internal/tune", "internal/exchange/aggregate", "internal/exchange", "collective", "compress", "internal/bucket", "ps/...", "internal/server/..."},
		to:   []string{"nn", "model", "models", "train"},
		why:  "what moves gradients works on plain slices, so that any framework can use it",
	},
	{
		from: []string{"internal/wire"},
		to:   []string{"..."},
		why:  "the frame layout depends on nothing of ours",
	},
	{
		from: []string{lowest},
		to:   []string{"..."},
		why:  "every layer writes quantities by it",
	},
	{
		from: []string{"internal/evalmetrics"},
		to:   []string{"..."},
		why:  "tables of metrics depend on plain slices, so that model, train and predict can use them",
	},
	{
		from: []string{"internal/watch/record"},
		to:   []string{"..."},
		why:  "every layer records what it does, and who reads it compiles no layer",
	},
	{
		from: []string{"internal/watch/blackbox"},
		to:   []string{"", "transport/...", "internal/transport/...", "internal/wire", "internal/cluster", "internal/launch", "train", "collective", "distopt", "internal/bucket", "nn", "model", "models", "data", "ps/...", "internal/server/...", "internal/job", "cmd/..."},
		why:  "what is found in records of a job that failed depends on these alone: no layer is asked",
	},
	{
		from: []string{"internal/watch/failure"},
		to:   []string{"..."},
		why:  "every layer's errors say where they are from in its words",
	},
	{
		from: []string{"transport/...", "internal/transport/..."},
		to:   []string{"collective", "distopt", "internal/bucket", "optim", "nn", "model", "models", "train", "data", "internal/cluster", "internal/launch", "cmd/..."},
		why:  "links and meshes move bytes and know nothing of what they mean",
	},
	{
		from: []string{"nn", "model", "models", "optim/..."},
		to:   []string{"transport/...", "internal/transport/...", "internal/wire", "collective", "distopt", "internal/bucket", "internal/cluster", "internal/launch", "train", "data"},
		why:  "the engine knows nothing of networks",
	},
	{
		from: []string{"model", "train", "internal/heter/..."},
		to:   []string{"models"},
		why:  "a model of one's own is no other than one of the zoo, which nobody compiles who has his own",
	},
	{
		from: []string{"internal/launch"},
		to:   []string{"nn", "model", "models", "optim", "collective", "distopt", "internal/bucket", "data", "train", "internal/simd"},
		why:  "the launcher starts any program and knows no tensors",
	},
	{
		from: []string{"internal/launch/extenv"},
		to:   []string{"..."},
		why:  "what a launcher's variables say depends on these alone",
	},
	{
		from: []string{"internal/launch/hosts"},
		to:   []string{"", "internal/cluster", "internal/launch", "internal/launch/extenv", "transport/...", "internal/transport/...", "internal/wire", "internal/watch/record", "internal/setting", "internal/job"},
		why:  "how a program is started on another host does not depend on what it is",
	},
	{
		from: []string{"data/table"},
		to:   []string{"..."},
		why:  "columns and their encoding depend on nothing of ours",
	},
	{
		from: []string{"internal/data/..."},
		to:   []string{"", "data", "predict", "nn", "model", "models", "train", "transport/...", "internal/transport/...", "weights", "cmd/..."},
		why:  "package data opens sets by their kinds, which do not depend on it",
	},
	{
		from: []string{"data/...", "internal/data/datafile", "internal/data/images", "internal/data/clicks", "internal/data/text", "predict", "train"},
		to:   []string{"internal/data/download"},
		why:  "who opens a set has its files, and a trainer needs no client of HTTP",
	},
	{
		from: []string{"internal/data/npy"},
		to:   []string{"data/table", "internal/setting"},
		why:  "an array's numbers do not depend on what they are for",
	},
	{
		from: []string{"data", "internal/simd", "internal/bucket", "compress", "optim/...", "checkpoint"},
		to:   []string{"transport/...", "internal/transport/...", "internal/wire", "internal/cluster", "internal/launch", "train", "collective", "distopt", "nn", "models"},
		why:  "these are leaves that every layer may use",
	},
	{
		from: []string{"internal/server/rows"},
		to:   []string{"transport/...", "internal/transport/...", "internal/wire", "internal/cluster", "collective", "internal/exchange", "compress", "internal/bucket", "distopt", "internal/exchange/aggregate", "data", "internal/launch"},
		why:  "a table in memory is rows and the rules that update them: what stores, sends and serves them stands on it",
	},
	{
		from: []string{"internal/server/message"},
		to:   []string{"internal/cluster", "collective", "internal/exchange", "internal/bucket", "distopt", "optim/...", "internal/exchange/aggregate", "internal/server/rows", "ps/schema", "internal/server/store", "internal/server/wal", "internal/server/shard", "internal/server/engine", "internal/server/service/...", "ps/client", "internal/launch", "data"},
		why:  "messages are bytes and their limits, which both ends stand on",
	},
	{
		from: []string{"ps/client"},
		to:   []string{"internal/server/service/...", "internal/server/engine", "internal/server/shard", "internal/server/store", "internal/server/wal"},
		why:  "who trains must not compile a server",
	},
	{
		from: []string{"internal/server/shard"},
		to:   []string{"transport/...", "internal/transport/...", "internal/wire", "internal/cluster", "collective", "internal/exchange", "compress", "internal/bucket", "distopt", "internal/exchange/aggregate", "data", "internal/launch", "checkpoint"},
		why:  "a server's part of a table is rows in two tiers: what numbers, logs and sends pushes stands on it",
	},
	{
		from: []string{"internal/watch/trace"},
		to:   []string{"distopt", "internal/bucket", "compress", "internal/exchange", "optim/...", "nn", "model", "models", "train", "data", "internal/cluster", "internal/launch"},
		why:  "what records times is called by all stages and knows none of them",
	},
	{
		from: []string{"internal/runlog"},
		to:   []string{"..."},
		why:  "reports, and pages of jobs that go on, show runs by their records alone",
	},
	{
		from: []string{"internal/connpeek"},
		to:   []string{"..."},
		why:  "every listener spares itself callers who say nothing, whatever it listens for",
	},
	{
		from: []string{"internal/httpguard"},
		to:   []string{"", "internal/cluster/...", "collective", "data", "distopt", "internal/launch", "internal/watch/metrics", "model", "models", "nn", "ps/...", "internal/server/...", "internal/setting", "train", "transport/...", "internal/transport/...", "internal/wire", "cmd/..."},
		why:  "who may ask does not depend on what is answered",
	},
	{
		from: []string{"internal/watch/metrics"},
		to:   []string{"", "distopt", "internal/bucket", "compress", "internal/exchange", "collective", "internal/cluster", "nn", "model", "models", "train", "data", "internal/launch", "transport/...", "internal/transport/...", "ps/...", "internal/server/...", "internal/watch/metrics/scrape", "cmd/..."},
		why:  "every layer counts its figures there, and who reads them compiles no layer",
	},
	{
		from: []string{"internal/watch/tensorboard"},
		to:   []string{"", "distopt", "internal/bucket", "compress", "internal/exchange", "nn", "model", "models", "train", "data", "internal/launch", "cmd/..."},
		why:  "who writes figures for TensorBoard may have a loop of his own",
	},
	{
		from: []string{"internal/steptrace"},
		to:   []string{"", "distopt", "internal/bucket", "compress", "internal/exchange", "nn", "model", "models", "train", "data", "internal/launch", "cmd/..."},
		why:  "steps are analysed from trace files and recorders alone",
	},
	{
		from: []string{"internal/server/wal", "internal/server/store", "internal/server/snapshot", "internal/server/export", "internal/dirlock"},
		to:   []string{"", "internal/exchange/aggregate", "internal/server/rows", "transport/...", "internal/transport/...", "internal/wire", "internal/cluster", "internal/launch", "train", "collective", "internal/exchange", "distopt", "nn", "model", "models", "optim/...", "checkpoint", "data", "cmd/..."},
		why:  "a log and a store of bytes know nothing of what the bytes mean",
	},
	{
		from: []string{"ps/schema", "internal/server/engine", "internal/server/tiers"},
		to:   []string{"", "internal/exchange/aggregate", "transport/...", "internal/transport/...", "internal/wire", "internal/cluster", "internal/launch", "collective", "internal/exchange", "distopt", "compress", "internal/bucket", "checkpoint", "data"},
		why:  "what a server holds, and how it changes, knows nothing of who asks: the service stands on it",
	},
	{
		from: []string{"internal/remote/..."},
		to:   []string{"", "internal/cluster/...", "collective", "checkpoint", "data", "distopt", "internal/launch", "nn", "model", "models", "ps/...", "internal/server/...", "internal/setting", "train", "transport/...", "internal/transport/..."},
		why:  "what is carried are files by their names, and who carries them compiles no layer",
	},
	{
		from: []string{"internal/setting"},
		to:   []string{"", "internal/exchange/aggregate", "internal/bucket", "checkpoint", "internal/cluster", "collective", "compress", "data", "distopt", "internal/exchange", "internal/job/jobfile", "internal/launch", "model", "models", "nn", "optim/...", "ps/...", "internal/server/...", "internal/watch/trace", "train", "transport/...", "internal/transport/...", "internal/tune", "internal/wire"},
		why:  "every package may own settings",
	},
	{
		from: []string{"internal/cli", "internal/cli/commandtest"},
		to:   []string{"", "internal/bucket", "internal/cluster", "collective", "compress", "data", "distopt", "internal/exchange", "internal/launch", "model", "models", "nn", "ps/...", "internal/server/...", "train", "transport/...", "internal/transport/...", "internal/tune"},
		why:  "how commands speak does not depend on what they do",
	},
}

func matches(patterns []string, pkg string) bool {
	for _, p := range patterns {
		base, tree := strings.CutSuffix(p, "...")
		base = strings.TrimSuffix(base, "/")
		if pkg == base || tree && (base == "" || strings.HasPrefix(pkg, base+"/")) {
			return true
		}
	}
	return false
}

// file is one Go file of the module.
type file struct {
	path string // below the module's root, with slashes
	pkg  string // its folder, "" for the root
	fset *token.FileSet
	ast  *ast.File
}

// public reports whether other modules can import the file's package. Programs in bench/ and examples/ are to run.
func (f file) public() bool {
	return !strings.Contains("/"+f.pkg+"/", "/internal/") && !matches([]string{"bench/...", "examples/...", "cmd/..."}, f.pkg)
}

func (f file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// source parses every Go file of the module, nested modules left out.
func source(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != root && nested(p, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		f := file{path: filepath.ToSlash(rel), fset: token.NewFileSet()}
		if f.pkg = path.Dir(f.path); f.pkg == "." {
			f.pkg = ""
		}
		f.ast, err = parser.ParseFile(f.fset, p, nil, parser.ParseComments)
		out = append(out, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("no Go file found: is the test run from its own folder?")
	}
	return out
}

func nested(dir, name string) bool {
	if strings.HasPrefix(name, ".") || name == "testdata" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func TestLayering(t *testing.T) {
	for _, f := range source(t) {
		if f.test() {
			continue // a test may stand on anything to build its scene
		}
		for _, imp := range f.ast.Imports {
			full, _ := strconv.Unquote(imp.Path.Value)
			to, ours := strings.CutPrefix(full, module)
			to = strings.TrimPrefix(to, "/")
			if !ours || to == f.pkg || to == lowest {
				continue
			}
			if matches([]string{"cmd/..."}, to) && !matches([]string{"cmd/..."}, f.pkg) {
				t.Errorf("%s imports %s: the command stands on top", f.path, to)
			}
			for _, rule := range forbidden {
				if matches(rule.from, f.pkg) && matches(rule.to, to) {
					t.Errorf("%s imports %s: %s", f.path, to, rule.why)
				}
			}
		}
	}
}

// heavy are modules with many dependencies of their own: the one package that
// imports each, and those that may reach it.
var heavy = []struct {
	module string
	in     string
	reach  []string
	why    string
}{
	{
		module: "go.yaml.in/yaml",
		in:     "internal/job/jobfile",
		reach:  []string{"internal/job/jobfile", "cmd/..."},
		why:    "a library's user has no job files",
	},
	{
		module: "go.yaml.in/yaml",
		in:     "internal/data/layout",
		reach:  []string{"..."},
		why:    "how samples lie in files is said in YAML, for programs of one's own, too",
	},
	{
		module: "github.com/prometheus/client_golang",
		in:     "internal/watch/metrics/scrape",
		reach:  []string{"internal/watch/metrics/scrape", "internal/server", "internal/job", "cmd/...", "bench/keys"},
		why:    "who trains counts figures in plain words, and who answers reads them",
	},
}

func TestHeavyModules(t *testing.T) {
	files := source(t)
	imports := ourImports(files)
	for _, f := range files {
		for _, imp := range f.ast.Imports {
			full, _ := strconv.Unquote(imp.Path.Value)
			for _, h := range heavy {
				if strings.HasPrefix(full, h.module) && !allowed(h.module, f.pkg) && !(f.test() && strings.HasPrefix(f.pkg, "cmd/")) { // nobody imports a command's tests
					t.Errorf("%s imports %s, which is for %s alone: %s", f.path, full, h.in, h.why)
				}
			}
		}
	}
	for _, h := range heavy {
		for pkg := range imports {
			if reaches(imports, pkg, h.in, map[string]bool{}) && !matches(h.reach, pkg) {
				t.Errorf("%s imports %s, by way of others or itself: %s", pkg, h.in, h.why)
			}
		}
	}
}

// allowed tells whether a row of heavy is for a package and a module.
func allowed(module, pkg string) bool {
	for _, h := range heavy {
		if h.module == module && h.in == pkg {
			return true
		}
	}
	return false
}

// ourImports returns this module's packages that each of its packages imports outside tests.
func ourImports(files []file) map[string][]string {
	imports := map[string][]string{}
	for _, f := range files {
		for _, imp := range f.ast.Imports {
			full, _ := strconv.Unquote(imp.Path.Value)
			if to, ours := strings.CutPrefix(full, module); ours && !f.test() {
				imports[f.pkg] = append(imports[f.pkg], strings.TrimPrefix(to, "/"))
			}
		}
	}
	return imports
}

// reaches tells whether a package imports another one, itself or through others.
func reaches(imports map[string][]string, from, to string, seen map[string]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for _, next := range imports[from] {
		if next == to || reaches(imports, next, to, seen) {
			return true
		}
	}
	return false
}

// calls are functions that may only be called in the named packages.
var calls = []struct {
	name  string
	where []string
	why   string
}{
	{"os.Exit", []string{"cmd/...", "examples/...", "bench/..."}, "only main ends the process, so that a library's caller can handle its errors"},
	{"log.Fatal", []string{}, "only main ends the process"},
	{"os.Getenv", []string{"cmd/..."}, "the environment is read by the command and by one function for the launcher's variables"},
	{"os.LookupEnv", []string{"cmd/...", ""}, "the environment is read by the command and by Join, which hands it to launch.FromEnv"},
	{"fmt.Println", []string{"cmd/...", "examples/...", "bench/..."}, "libraries return values and errors and print nothing"},
	{"fmt.Printf", []string{"cmd/...", "examples/...", "bench/..."}, "libraries return values and errors and print nothing"},
}

func TestHouseRules(t *testing.T) {
	for _, f := range source(t) {
		if f.test() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			for _, c := range calls {
				if x.Name+"."+sel.Sel.Name == c.name && !matches(c.where, f.pkg) {
					t.Errorf("%s: %s: %s", f.fset.Position(sel.Pos()), c.name, c.why)
				}
			}
			return true
		})
	}
}

// What users name is opened by internal/pathname, which waits for no pipe and reads no device for ever.
func TestFilesAreOpenedWithoutWaiting(t *testing.T) {
	exceptions := []string{"internal/pathname", "internal/dirlock", "internal/golden", "internal/simd/..."} // of folders, and of files that are ours
	for _, f := range source(t) {
		if f.test() || matches(exceptions, f.pkg) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Open" && sel.Sel.Name != "ReadFile" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" && !ofSystem(call.Args[0]) {
				t.Errorf("%s: os.%s waits for whatever a name stands for: use internal/pathname", f.fset.Position(call.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}

// ofSystem tells whether a path is one of /proc or /sys.
func ofSystem(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.BasicLit:
			return strings.HasPrefix(x.Value, `"/proc/`) || strings.HasPrefix(x.Value, `"/sys/`)
		case *ast.BinaryExpr:
			e = x.X
		case *ast.CallExpr: // fmt.Sprintf and its like
			if len(x.Args) == 0 {
				return false
			}
			e = x.Args[0]
		default:
			return false
		}
	}
}

// Every exported name says what it is.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range source(t) {
		if f.test() || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: exported %s has no comment", f.fset.Position(d.Pos()), name)
			}
		}
	}
}

// undocumented returns the exported names of a declaration without a comment.
func undocumented(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			return []string{d.Name.Name}
		}
	case *ast.GenDecl:
		var out []string
		for _, s := range d.Specs {
			out = append(out, undocumentedSpec(d, s)...)
		}
		return out
	}
	return nil
}

func undocumentedSpec(d *ast.GenDecl, s ast.Spec) []string {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
			return []string{s.Name.Name}
		}
	case *ast.ValueSpec:
		if d.Doc != nil || s.Doc != nil || s.Comment != nil {
			return nil
		}
		for _, n := range s.Names {
			if n.IsExported() {
				return []string{n.Name}
			}
		}
	}
	return nil
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.IsExported() {
			exported = true
		}
		return true
	})
	return exported
}

// users are the packages that programs of one's own import.
var users = []string{
	"", "internal/exchange/aggregate", "internal/bucket", "checkpoint", "internal/cluster", "collective", "compress", "data", "data/table", "distopt", "internal/exchange", "internal/job", "internal/job/jobfile", "internal/launch",
	"internal/watch/metrics", "model", "models", "nn", "onnx", "optim", "optim/schedule", "internal/watch/failure", "predict", "ps/client", "internal/server/export", "internal/server/rows", "ps/schema", "internal/server", "internal/server/service",
	"internal/server/snapshot", "internal/server/engine", "internal/server/wal", "internal/setting", "internal/watch/tensorboard", "internal/watch/trace", "train", "transport", "internal/transport/fault", "internal/transport/mem", "internal/transport/shm", "internal/transport/tcp", "internal/tune", "weights", "internal/wire",
}

// A package that programs import shows how, by an example whose output is checked.
func TestUsersPackagesHaveExamples(t *testing.T) {
	shown := map[string]bool{}
	for _, f := range source(t) {
		for _, e := range doc.Examples(f.ast) {
			shown[f.pkg] = shown[f.pkg] || e.Output != "" || e.EmptyOutput
		}
	}
	for _, pkg := range users {
		if !shown[pkg] {
			t.Errorf("package %q has no Example with an Output", pkg)
		}
	}
}
