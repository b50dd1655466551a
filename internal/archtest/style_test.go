package archtest

import (
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words splits a list of words at its spaces.
func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// Words and patterns that the checks of the style count.
var (
	pronouns = words("it its itself they them their theirs themselves he him his himself she her hers this that these those " +
		"who whom whose which what whatever whoever whichever one ones others another nobody somebody someone anybody anyone " +
		"everybody everyone nothing something anything everything here there")
	dense        = words("what which who those others one")
	badStarts    = words("what who which of those")
	badEndOfLine = words("of that which who whom whose what likewise its it their them those these how where when why by in to from " +
		"for with on at as and or but not nothing nobody")
	functionWords = words("told tell tells own owns owned here there lend lends lent apart far near beside besides behind away afar " +
		"aside along across around among within who whom whose what which how why others other another nobody somebody everyone " +
		"everybody again anew meanwhile soon ahead alike likewise kept left given said says saw seen heard hear hears meet met come " +
		"came gone went had knows know knew want wants wanted")

	wordPattern   = regexp.MustCompile(`[A-Za-z][A-Za-z'’]*`)
	quotedPattern = regexp.MustCompile("`[^`]*`|\"[^\"]*\"")
	linkPattern   = regexp.MustCompile(`\[[^\]]*\]`)
	sentenceEnd   = regexp.MustCompile(`[.!?]\s+[A-Z\[]`)
	abbreviation  = regexp.MustCompile(`\b(e\.g|i\.e|etc|vs|cf|et al)\.`)
	directive     = regexp.MustCompile(`^//(go:|line |export |lint:|nolint|\t)`)
)

// prose counts the words of a text and those that the style avoids.
type prose struct {
	words, pronouns, dense, starts, denseSentences int
	endOfLine, badEndOfLine                        int
	names, functionNames                           int
	unnamed, long                                  int
}

// add counts one paragraph.
func (p *prose) add(text string) {
	text = abbreviation.ReplaceAllString(linkPattern.ReplaceAllString(quotedPattern.ReplaceAllString(text, " "), "Link"), "$1")
	for first := true; len(text) > 0; first = false {
		sentence := text
		if at := sentenceEnd.FindStringIndex(text); at != nil {
			sentence = text[:at[0]+1]
			text = text[at[1]-1:]
		} else {
			text = ""
		}
		all := wordPattern.FindAllString(strings.ToLower(sentence), -1)
		p.sentence(all)
		if name := wordPattern.FindString(sentence); first && (name == "Of" || strings.ToLower(name) == name) && len(all) > 0 {
			p.starts -= oneIf(badStarts[all[0]]) // the name of a function
		}
	}
}

func (p *prose) sentence(all []string) {
	if len(all) == 0 {
		return
	}
	n := 0
	for _, w := range all {
		p.pronouns += oneIf(pronouns[w])
		n += oneIf(dense[w])
	}
	p.words += len(all)
	p.dense += n
	p.starts += oneIf(badStarts[all[0]])
	p.denseSentences += oneIf(len(all) >= 12 && 8*n >= len(all))
}

// addFile counts the comments and names of a Go file.
func (p *prose) addFile(f file, lines []string) {
	for _, group := range f.ast.Comments {
		var paragraph strings.Builder
		for _, c := range group.List {
			at := f.fset.Position(c.Pos())
			text, line := strings.CutPrefix(c.Text, "//")
			if !line || directive.MatchString(c.Text) {
				continue
			}
			if strings.TrimSpace(lines[at.Line-1][:at.Column-1]) != "" {
				first := wordPattern.FindString(strings.ToLower(text))
				p.endOfLine++
				p.badEndOfLine += oneIf(badEndOfLine[first])
				continue
			}
			p.long += oneIf(len([]rune(strings.ReplaceAll(lines[at.Line-1], "\t", "    "))) > 100)
			if paragraph.WriteString(text + " "); strings.TrimSpace(text) == "" {
				p.add(paragraph.String())
				paragraph.Reset()
			}
		}
		p.add(paragraph.String())
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			p.declared(n.Doc, n.Name)
		case *ast.TypeSpec:
			p.declared(n.Doc, n.Name)
		case *ast.Field:
			p.declared(n.Doc, n.Names...)
		case *ast.FuncType:
			return false // parameters
		}
		return true
	})
	for _, d := range f.ast.Decls {
		if d, ok := d.(*ast.GenDecl); ok {
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					p.declared(docOf(d, s.Doc), s.Names...)
				case *ast.TypeSpec:
					p.declared(docOf(d, nil))
				}
			}
		}
	}
}

// docOf returns the comment of a specification, which a declaration without parentheses has.
func docOf(d *ast.GenDecl, doc *ast.CommentGroup) *ast.CommentGroup {
	if doc == nil && !d.Lparen.IsValid() {
		return d.Doc
	}
	return doc
}

// declared counts declared names, and the comment of a single one that does not begin with that name.
func (p *prose) declared(doc *ast.CommentGroup, names ...*ast.Ident) {
	for _, n := range names {
		p.names++
		p.functionNames += oneIf(functionWords[strings.ToLower(n.Name)])
	}
	if doc == nil || len(names) != 1 || doc.Text() == "" {
		return
	}
	first := regexp.MustCompile(`^(?:(?:An?|The) )?([\p{L}\d_]+)`).FindStringSubmatch(doc.Text())
	p.unnamed += oneIf(first == nil || !slices.Contains([]string{names[0].Name, "Deprecated", "invariant", "Cost"}, first[1]))
}

// shares prints the shares that have a limit.
func (p *prose) String() string {
	return fmt.Sprintf("%d words; per 1,000: %d pronouns, %d dense; %d bad starts, %d dense sentences, %d of %d bad ends of lines, %d of %d names, %d unnamed comments, %d long lines",
		p.words, share(p.pronouns, p.words), share(p.dense, p.words), p.starts, p.denseSentences, p.badEndOfLine, p.endOfLine, p.functionNames, p.names, p.unnamed, p.long)
}

func share(n, of int) int { return (1000*n + of/2) / max(of, 1) }

// minWords is the least text with shares that mean something.
const minWords = 300

// TestStyle: comments and docs are written as the style demands, in each package and page.
func TestStyle(t *testing.T) {
	packages, public := map[string]*prose{}, map[string]bool{}
	all := &prose{}
	for _, f := range source(t) {
		if f.test() || ast.IsGenerated(f.ast) || matches([]string{"bench/..."}, f.pkg) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(f.path)))
		if err != nil {
			t.Fatal(err)
		}
		if packages[f.pkg] == nil {
			packages[f.pkg] = &prose{}
		}
		public[f.pkg] = f.public() && f.ast.Name.Name != "main"
		lines := strings.Split(string(text), "\n")
		packages[f.pkg].addFile(f, lines)
		all.addFile(f, lines)
	}
	t.Logf("all packages: %v", all)
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		p, limit := packages[pkg], 80
		if public[pkg] {
			limit = 60
		}
		t.Logf("%s: %v", pkg, p)
		if p.words >= minWords && share(p.pronouns, p.words) > limit || p.starts > 0 || p.denseSentences > 0 || p.unnamed > 0 || p.long > 0 {
			t.Errorf("package %q: %v: at most %d pronouns per 1,000 words, and none of starts, dense sentences, unnamed comments and long lines", pkg, p, limit)
		}
	}
	if share(all.functionNames, all.names) > 5 || share(all.badEndOfLine, all.endOfLine) > 50 || share(all.dense, all.words) > 8 {
		t.Errorf("all packages: %v: at most 5 names per 1,000 and 50 ends of lines per 1,000 are function words, and 8 words per 1,000 dense", all)
	}
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^```.*?^```|^(?:    |\t).*?$")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	tableLine  = regexp.MustCompile(`(?m)^(?:\||#|<).*$`)
	listStart  = regexp.MustCompile(`^\s*(?:[-*]|\d+\.)\s+`)
)

// TestPages: README and docs are written as the style demands, and each page of docs has its parts.
func TestPages(t *testing.T) {
	all := &prose{}
	for _, name := range pages(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p := &prose{}
		body := tableLine.ReplaceAllString(codeBlock.ReplaceAllString(string(text), ""), "")
		body = strings.ReplaceAll(linkTarget.ReplaceAllString(body, ""), "[", "")
		for line := range strings.Lines(body) {
			line = listStart.ReplaceAllString(strings.TrimSpace(line), "")
			p.add(line)
			all.add(line)
			p.long += oneIf(len([]rune(quotedPattern.ReplaceAllString(line, ""))) > 160)
		}
		t.Logf("%s: %v", name, p)
		if p.words >= minWords && share(p.pronouns, p.words) > 80 || p.starts > 0 || p.long > 0 {
			t.Errorf("%s: %v: at most 80 pronouns per 1,000 words, no bad start, no sentence over 160 characters", name, p)
		}
		if filepath.Dir(name) == filepath.Join("..", "..", "docs") {
			checkShape(t, name, string(text))
		}
	}
	t.Logf("all pages: %v", all)
}

// checkShape checks that a page of docs begins with a command or an example, and ends with its limits and other pages.
func checkShape(t *testing.T, name, text string) {
	if base := filepath.Base(name); base == "README.md" || base == "settings.md" || base == "glossary.md" || base == "SECURITY.md" {
		return // an index, two tables and a policy
	}
	head := strings.Join(strings.SplitN(text, "\n", 13)[:min(12, strings.Count(text, "\n"))], "\n")
	if !codeBlock.MatchString(head) {
		t.Errorf("%s: no command or example in the first 12 lines", name)
	}
	for _, part := range []string{"\n## Limits\n", "\n## See also\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s: no %q", name, strings.TrimSpace(part))
		}
	}
}

// pages returns README.md and the pages of docs.
func pages(t *testing.T) []string {
	all := []string{filepath.Join("..", "..", "README.md")}
	err := filepath.WalkDir(filepath.Join("..", "..", "docs"), func(p string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(p, ".md") {
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
