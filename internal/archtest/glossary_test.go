package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each term of the glossary stands once, with a sentence, and with a package that is there.
func TestGlossary(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) == 3 && cells[0] == "term" {
			continue
		}
		if len(cells) != 3 || seen[cells[0]] || !strings.ContainsAny(cells[1], ".") {
			t.Errorf("%q: want a term that stands once, a sentence, a package", line)
			continue
		}
		seen[cells[0]] = true
		pkg := strings.Trim(cells[2], "`")
		if pkg == "*(root)*" || pkg == "all" {
			continue
		}
		if found, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*.go")); len(found) == 0 {
			t.Errorf("%s: there is no package %s", cells[0], pkg)
		}
	}
	if len(seen) < 50 {
		t.Errorf("%d terms", len(seen))
	}
}
