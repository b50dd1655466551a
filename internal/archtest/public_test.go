package archtest

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPublicPackages: docs/stability.md lists the packages that other modules can import, all of them.
func TestPublicPackages(t *testing.T) {
	page, err := os.ReadFile("../../docs/stability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Packages")
	table, _, _ = strings.Cut(table, "\n## ")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|").FindAllStringSubmatch(table, -1) {
		listed = append(listed, m[1])
	}
	if have := publicPackages(t); !slices.Equal(listed, have) {
		t.Errorf("docs/stability.md lists\n%q, the public packages are\n%q", listed, have)
	}
}

// publicPackages are the packages that other modules can import, by name, the root first.
func publicPackages(t *testing.T) []string {
	var all []string
	for _, f := range source(t) {
		if name := f.ast.Name.Name; !f.test() && name != "main" && f.public() {
			if f.pkg == "" {
				name = "ringo"
			} else {
				name = f.pkg
			}
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		if (a == "ringo") != (b == "ringo") {
			return map[bool]int{true: -1, false: 1}[a == "ringo"]
		}
		return strings.Compare(a, b)
	})
	return all
}

// TestArchitectureNamesEachPackage: ARCHITECTURE.md has each internal package outside cmd/, by path or as `/name`.
func TestArchitectureNamesEachPackage(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range source(t) {
		if f.test() || seen[f.pkg] || !strings.HasPrefix(f.pkg, "internal/") || strings.HasPrefix(f.pkg, "internal/simd/") {
			continue
		}
		seen[f.pkg] = true
		if text := string(page); !strings.Contains(text, "`"+f.pkg+"`") && !strings.Contains(text, "`/"+path.Base(f.pkg)+"`") {
			t.Errorf("ARCHITECTURE.md has no package %s", f.pkg)
		}
	}
}
