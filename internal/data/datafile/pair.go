package datafile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/setting"
)

// pair are the two files of a set of text lines.
type Pair struct {
	Train, Eval string
	unused      []string // names of the folder that could have been eval
}

// notes are what a person should know of the choice.
func (p Pair) Notes() []string {
	if len(p.unused) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("evaluating on %s, not on %s (data.eval-file names another)", p.Eval, strings.Join(p.unused, " or "))}
}

// findPair returns the files that are named, and for what is not named those
// of the folder with train, and with test, dev, valid or eval (in this order)
// in their names, compressed or not.
func FindPair(set, dir, train, eval string) (p Pair, err error) {
	p = Pair{Train: train, Eval: eval}
	for i, path := range []string{p.Train, p.Eval} {
		if path == "" {
			continue
		}
		if _, err := pathname.Check(path); err != nil {
			return p, fmt.Errorf("%s: %w", set, setting.Errorf([]setting.Path{TrainFilePath, EvalFilePath}[i], "%w", err))
		}
	}
	if p.Train != "" && p.Eval != "" {
		return p, nil
	}
	names, err := TextFiles(dir, set == "criteo" || set == "clicks")
	if err == nil && set == "clicks" {
		names, err = withTyped(dir, names)
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w; %w", set, err, TextAlternatives(set, dir))
	}
	if p.Train == "" {
		if p.Train, err = named(dir, names, "train"); err != nil {
			return p, fmt.Errorf("%s: %w; %w", set, err, TextAlternatives(set, dir))
		}
	}
	if p.Eval == "" {
		if p.Eval, err = named(dir, names, EvalWords()...); err != nil {
			return p, fmt.Errorf("%s: %w; %w", set, err, TextAlternatives(set, dir))
		}
		p.unused = unusedFiles(names, p)
	}
	for _, path := range []string{p.Train, p.Eval} {
		if _, err := pathname.Check(path); err != nil {
			return p, fmt.Errorf("%s: %w", set, err)
		}
	}
	return p, nil
}

// unusedFiles are the names that could have been those of the file to evaluate on, but for
// compressed and plain twins of what is used.
func unusedFiles(names []string, p Pair) (unused []string) {
	used, _ := UnpackedName(filepath.Base(p.Eval))
	for _, name := range names {
		plain, _ := UnpackedName(name)
		isEval := slices.ContainsFunc(EvalWords(), func(word string) bool { return strings.Contains(strings.ToLower(name), word) })
		if isEval && plain != used && name != filepath.Base(p.Train) && !slices.Contains(unused, plain) {
			unused = append(unused, name)
		}
	}
	return unused
}

// textFiles are the names in a folder that can be files of lines: of text, or
// with tables of values too.
func TextFiles(dir string, tables bool) (names []string, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name, _ := UnpackedName(strings.ToLower(e.Name()))
		switch filepath.Ext(name) {
		case ".tsv", ".csv":
			if tables && !e.IsDir() && !strings.HasPrefix(name, ".") {
				names = append(names, e.Name())
			}
		case ".txt", ".tokens", ".raw", "", ".train", ".test", ".dev", ".valid", ".eval":
			if !e.IsDir() && !strings.HasPrefix(name, ".") {
				names = append(names, e.Name())
			}
		}
	}
	return names, err
}

// typed reports whether a file's columns have names and types, as its name says: those of Parquet
// and Arrow.
func Typed(path string) bool {
	end := strings.ToLower(filepath.Ext(path))
	return end == ".parquet" || IsArrow(end)
}

// withTyped are some names of a folder and those of files whose columns have types.
func withTyped(dir string, names []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if Typed(e.Name()) && !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// named is the file with the first of the words that any name has in it, the
// plain one where it is there compressed as well.
func named(dir string, names []string, words ...string) (string, error) {
	for _, word := range words {
		var found []string
		for _, name := range names {
			if !strings.Contains(strings.ToLower(name), word) {
				continue
			}
			if plain, packing := UnpackedName(name); packing != "" && slices.Contains(found, plain) { // names are sorted
				continue
			}
			found = append(found, name)
		}
		switch len(found) {
		case 0:
		case 1:
			return filepath.Join(dir, found[0]), nil
		default:
			return "", setting.Errorf(DirPath, "%s has %d files with %q in their names (%s): name one with %v or %v", dir, len(found), word, strings.Join(found, ", "), TrainFilePath, EvalFilePath)
		}
	}
	return "", fmt.Errorf("%s has no .txt or .tsv file (or .gz or .zst of one) with %s in its name: %w", dir, strings.Join(words, ", "), fs.ErrNotExist)
}

// textAlternatives is what to do where the files are not there.
func TextAlternatives(set, dir string) error {
	fetch := ""
	switch set {
	case "criteo":
		fetch = fmt.Sprintf("fetch a sample with `ringo data criteo --out %s`, ", dir)
	case "text", "chars":
		fetch = fmt.Sprintf("fetch WikiText-2 with `ringo data text --out %s`, ", dir)
	}
	return setting.Errorf("", "%sname the files with %v and %v, or train with %v %s", fetch, TrainFilePath, EvalFilePath, DirPath, Synthetic)
}

// isArrow knows files of Arrow's own format, and streams of it.
func IsArrow(ending string) bool {
	return ending == ".arrow" || ending == ".arrows" || ending == ".feather"
}
