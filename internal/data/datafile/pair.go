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

// Pair is the training and evaluation file of a data set of text lines.
type Pair struct {
	Train, Eval string
	unused      []string // other candidates for eval in the folder
}

// Notes returns the messages to print about the choice of files.
func (p Pair) Notes() []string {
	if len(p.unused) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("evaluating on %s, not on %s (data.eval-file names another)", p.Eval, strings.Join(p.unused, " or "))}
}

// FindPair returns train and eval if set. For an empty name it searches dir for a file with "train"
// in the name, or with "test", "dev", "valid" or "eval" in this order. Files may be compressed.
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

// unusedFiles returns the other candidates for the evaluation file, without compressed and plain
// twins of p.Eval.
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

// TextFiles returns the names of a folder's files that can be text lines. tables adds .tsv and
// .csv.
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

// Typed reports whether a file is Parquet or Arrow by its name: columns have names and types.
func Typed(path string) bool {
	end := strings.ToLower(filepath.Ext(path))
	return end == ".parquet" || IsArrow(end)
}

// withTyped adds a folder's Parquet and Arrow files to names.
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

// named returns the only file with the first matching word in its name. A plain file has precedence
// over its compressed twin.
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

// TextAlternatives returns the remedy for missing files.
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

// IsArrow reports whether the extension is one of Arrow files and streams.
func IsArrow(ending string) bool {
	return ending == ".arrow" || ending == ".arrows" || ending == ".feather"
}
