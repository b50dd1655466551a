package archtest

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// update lowers the limits to the counted values. Raising one is an edit of the file, with the reason in the
// commit:
//
//	go test ./internal/archtest -run Habits -update
var update = flag.Bool("update", false, "lower the limits of testdata/habits.txt to what is there")

// cold asks for the time of a build from nothing, which takes minutes:
//
//	go test ./internal/archtest -run ColdBuild -v -cold
var cold = flag.Bool("cold", false, "build the binary with an empty cache, and print how long that takes")

const habitsFile = "testdata/habits.txt"

// Counted values; each has an upper limit.
const (
	longestFile     = "lines of the longest source file"
	longestFunction = "lines of the longest function"
	sourceLines     = "lines of source outside bench/"
	dependencies    = "direct dependencies"
	binarySize      = "MiB of the binary"
	trainFlags      = "flags of train"
	settingRows     = "settings"
	exportedNames   = "exported names of "
	allExported     = "exported names of public packages"
	publicCount     = "public packages"
)

// What the code is like must not become worse unnoticed: each figure has its limit in testdata/habits.txt.
func TestHabits(t *testing.T) {
	files := source(t)
	got := map[string]int{dependencies: direct(t), publicCount: len(publicPackages(t))}
	countLines(t, files, got)
	countFunctions(t, files, got)
	for _, f := range files {
		if n := exported(f.ast); !f.test() && f.ast.Name.Name != "main" && f.public() {
			got[exportedNames+cmp.Or(f.pkg, "ringo")] += n
			got[allExported] += n
		}
		if !f.test() {
			got[settingRows] += rows(f.ast)
		}
	}
	if !testing.Short() { // building may take a while
		countBinary(t, got)
	}
	compareHabits(t, got)
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// direct is how many modules go.mod requires for our own sake.
func direct(t *testing.T) (n int) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "\t") && !strings.Contains(line, "// indirect") {
			n++
		}
	}
	return n
}

// countLines counts files by their lines. Generated code does not count; a package that only
// tests import counts as a test.
func countLines(t *testing.T, files []file, got map[string]int) {
	tests, longest := 0, ""
	linked := linkedPackages(files)
	for _, f := range files {
		n := f.fset.File(f.ast.Pos()).LineCount()
		switch {
		case ast.IsGenerated(f.ast):
			continue
		case f.test(), !linked[f.pkg]:
			tests += n
			continue
		}
		if !matches([]string{"bench/..."}, f.pkg) {
			got[sourceLines] += n
		}
		if n > got[longestFile] {
			got[longestFile], longest = n, f.path
		}
	}
	t.Logf("%d lines of source outside bench/, %d of tests; the longest file is %s", got[sourceLines], tests, longest)
}

// linkedPackages returns the folders of programs, of public packages, and of what they import
// outside tests.
func linkedPackages(files []file) map[string]bool {
	imports, linked := ourImports(files), map[string]bool{}
	for _, f := range files {
		if !f.test() && (f.ast.Name.Name == "main" || f.public()) {
			link(linked, imports, f.pkg)
		}
	}
	return linked
}

func link(linked map[string]bool, imports map[string][]string, pkg string) {
	if !linked[pkg] {
		linked[pkg] = true
		for _, to := range imports[pkg] {
			link(linked, imports, to)
		}
	}
}

func countFunctions(t *testing.T, files []file, got map[string]int) {
	functions, longest := 0, ""
	for _, f := range files {
		if f.test() || ast.IsGenerated(f.ast) {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			functions++
			if n > got[longestFunction] {
				got[longestFunction], longest = n, f.path+": "+fn.Name.Name
			}
		}
	}
	t.Logf("%d functions; the longest is %s", functions, longest)
}

// exported counts the exported names of a file's package level, methods included, fields not.
func exported(f *ast.File) (n int) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			n += oneIf(d.Name.IsExported() && exportedReceiver(d))
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					n += oneIf(s.Name.IsExported())
				case *ast.ValueSpec:
					for _, name := range s.Names {
						n += oneIf(name.IsExported())
					}
				}
			}
		}
	}
	return n
}

// rows counts the rows of settings that a file has: literals with a path and a value.
func rows(f *ast.File) (n int) {
	ast.Inspect(f, func(at ast.Node) bool {
		lit, ok := at.(*ast.CompositeLit)
		if !ok {
			return true
		}
		has := map[string]bool{}
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok {
					has[key.Name] = true
				}
			}
		}
		n += oneIf(has["Path"] && has["Value"])
		return true
	})
	return n
}

// countBinary builds the binary as users do, and asks it for its flags.
func countBinary(t *testing.T, got map[string]int) {
	name := filepath.Join(t.TempDir(), "ringo")
	t.Logf("built in %v, with what the build cache had", buildBinary(t, name))
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	got[binarySize] = int(info.Size() >> 20)
	for _, page := range []string{"../../docs/cluster.md"} {
		text, err := os.ReadFile(page)
		said := regexp.MustCompile(`(?:the default one|instead of) (\d+) MB`).FindSubmatch(text)
		if err != nil || said == nil {
			t.Fatalf("%s does not say how large the default binary is: %v", page, err)
		}
		if mb, _ := strconv.ParseFloat(string(said[1]), 64); math.Abs(float64(info.Size())/1e6-mb) > mb/20 {
			t.Errorf("%s says %v MB, the default binary has %d bytes", page, mb, info.Size())
		}
	}
	help, err := exec.Command(name, "help", "train", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(help) {
		got[trainFlags] += oneIf(bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("--")))
	}
}

// buildBinary builds the binary as users do, and returns how long that took.
func buildBinary(t *testing.T, name string, env ...string) time.Duration {
	start := time.Now()
	cmd := exec.Command("go", "build", "-o", name, "../../cmd/ringo")
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return time.Since(start).Round(time.Second / 10)
}

// A build from nothing, but for the modules' source, is what a first user waits for. Its time depends on the machine:
// it is printed, and has no limit.
func TestColdBuild(t *testing.T) {
	if !*cold {
		t.Skip("it takes minutes; -cold asks for it")
	}
	dir := t.TempDir()
	t.Logf("built from nothing in %v, on %d cores", buildBinary(t, filepath.Join(dir, "ringo"), "GOCACHE="+filepath.Join(dir, "cache")), runtime.NumCPU())
}

// compareHabits compares figures with their limits, or with -update makes these stricter.
func compareHabits(t *testing.T, got map[string]int) {
	limits, err := readHabits()
	if err != nil {
		t.Fatal(err)
	}
	better := 0
	for _, name := range slices.Sorted(maps.Keys(got)) {
		have, limit := got[name], limits[name]
		_, known := limits[name]
		switch {
		case !known && !*update:
			t.Errorf("%d %s: no limit in %s; -update adds it", have, name, habitsFile)
		case known && have > limit:
			t.Errorf("%d %s, the limit is %d: make it better, or raise the limit in %s and say why", have, name, limit, habitsFile)
		case have < limit || !known:
			better++
			limits[name] = have
		}
	}
	if !*update {
		t.Logf("%d figures are better than their limits; -update makes these stricter", better)
		return
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		fmt.Fprintf(&b, "%d %s\n", limits[name], name)
	}
	if err := os.WriteFile(habitsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readHabits reads the limits: a number, a space and its name in each line.
func readHabits() (map[string]int, error) {
	text, err := os.ReadFile(habitsFile)
	if os.IsNotExist(err) && *update {
		return map[string]int{}, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		number, name, _ := strings.Cut(lines.Text(), " ")
		if out[name], err = strconv.Atoi(number); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", habitsFile, lines.Text(), err)
		}
	}
	return out, nil
}
