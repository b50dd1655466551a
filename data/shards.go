package data

import (
	"archive/tar"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Limits of what names of shards may stand for, and of what the text of a label may be.
const (
	maxShards    = 1 << 16
	maxLabelText = 1 << 20
)

// shardNames are the files that a pattern stands for: {000..146} and {a,b} in braces, *, ? and [] as filepath.Match has
// them, several patterns separated by "::".
func shardNames(pattern string) ([]string, error) {
	var out []string
	for _, p := range strings.Split(pattern, "::") {
		names, err := braced(p)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found := []string{name}
			if strings.ContainsAny(name, "*?[") {
				if found, err = filepath.Glob(name); err == nil && len(found) == 0 {
					err = errors.New("no file has such a name")
				}
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
			if out = append(out, found...); len(out) > maxShards {
				return nil, fmt.Errorf("%s: more than %d files", pattern, maxShards)
			}
		}
	}
	for _, name := range out {
		if _, err := pathname.Check(name); err != nil {
			return nil, err
		}
		if !strings.EqualFold(filepath.Ext(name), ".tar") {
			return nil, fmt.Errorf("%s: want shards that end in .tar, which are not compressed: images in them are", name)
		}
	}
	return out, nil
}

// braced are the names that one with braces stands for.
func braced(name string) ([]string, error) {
	before, rest, open := strings.Cut(name, "{")
	inner, after, closed := strings.Cut(rest, "}")
	if !open || !closed {
		return []string{name}, nil
	}
	words := strings.Split(inner, ",")
	if from, to, ok := strings.Cut(inner, ".."); ok {
		lo, e1 := strconv.Atoi(from)
		hi, e2 := strconv.Atoi(to)
		if e1 != nil || e2 != nil || lo < 0 || hi < lo || hi-lo >= maxShards {
			return nil, fmt.Errorf("%s: {%s}: want numbers such as {000..146}, %d at most", name, inner, maxShards)
		}
		words = nil
		for n := lo; n <= hi; n++ {
			words = append(words, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	tails, err := braced(after)
	if len(tails)*len(words) > maxShards {
		err = fmt.Errorf("%s: more than %d files", name, maxShards)
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, w := range words {
		for _, tail := range tails {
			out = append(out, before+w+tail)
		}
	}
	return out, nil
}

// isShards tells whether a name stands for shards and not for the archive of a tree: it is a pattern, or the first files
// of the archive are an image and its label.
func isShards(path string) bool {
	if !strings.EqualFold(filepath.Ext(path), ".tar") {
		return false
	}
	if strings.ContainsAny(path, "{*?") || strings.Contains(path, "::") {
		return true
	}
	f, err := pathname.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	in := tar.NewReader(f)
	kinds := map[string]int{} // by key: 1 of an image, 2 of a label
	for range 8 {
		h, err := in.Next()
		if err != nil || slices.ContainsFunc(strings.Split(h.Name, "/"), isPart) {
			return false
		}
		key, field := member(h.Name)
		if isImage(h.Name) {
			kinds[key] |= 1
		} else if slices.Contains(labelFields, field) {
			kinds[key] |= 2
		}
		if kinds[key] == 3 {
			return true
		}
	}
	return false
}

// labelFields are the endings of files that hold a sample's label, the first choice first.
var labelFields = []string{"cls", "json", "txt"} // never written

// member is the sample that a file of a shard is of, and which of its fields: what precedes and what follows the first
// dot of its name.
func member(name string) (key, field string) {
	dir, base := filepath.Split(filepath.FromSlash(name))
	base, field, _ = strings.Cut(base, ".")
	return dir + base, strings.ToLower(field)
}

// shard is an archive as it is indexed.
type shard struct {
	path string
	size int64
	most int // faults that may be left out

	samples []picture
	faults  []error           // of samples that are left out
	left    datafile.LeftOuts // files that are of no sample
	key     string            // of the sample that is being read
	now     picture
	spoilt  bool // one of its files is bad
	field   int  // of labelFields that now has its label of; len(labelFields): it has none yet
}

// index lists the samples of the shard. Images are skipped and labels are read.
func (s *shard) index() error {
	f, err := pathname.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.size, s.field = info.Size(), len(labelFields)
	in := tar.NewReader(f) // which seeks
	end := int64(0)
	for {
		h, err := in.Next()
		at, seekErr := f.Seek(0, io.SeekCurrent)
		if seekErr != nil {
			return seekErr
		}
		if err == io.EOF && at-end < 512 {
			err = io.ErrUnexpectedEOF // an archive ends with zeros
		}
		if err == io.EOF {
			return s.finish()
		}
		if err != nil {
			return datafile.ArchiveFault(s.path, at, cmp.Or(s.key, "the beginning"), err)
		}
		if h.Typeflag != tar.TypeReg {
			if kind := datafile.EntryKind(h); kind != "" {
				s.left.Add(kind, s.path+": "+h.Name)
			}
			end = at
			continue
		}
		if h.Size > s.size-at {
			return datafile.ArchiveFault(s.path, s.size, h.Name, io.ErrUnexpectedEOF)
		}
		end = at + (h.Size+511)/512*512
		if err := s.add(h, at, in); err != nil {
			return err
		}
	}
}

// skip notes a fault of the sample that is being read. It ends the shard where there are more than
// may be.
func (s *shard) skip(fault error) error {
	s.faults, s.spoilt = append(s.faults, fault), true
	if len(s.faults) > s.most {
		return fault
	}
	return nil
}

// add takes a file of the shard.
func (s *shard) add(h *tar.Header, at int64, content io.Reader) error {
	if datafile.IsHidden(h.Name) {
		s.left.Add(datafile.HiddenFile, s.path+": "+h.Name)
		return nil
	}
	key, field := member(h.Name)
	if key != s.key {
		if err := s.finish(); err != nil {
			return err
		}
		s.key = key
	}
	fault := func(problem string) error { return datafile.Errorf(s.path, at, "%s", h.Name+": "+problem) }
	switch n := slices.Index(labelFields, field); {
	case isImage(h.Name) && s.now.size > 0:
		return s.skip(fault("a second image of the sample"))
	case isImage(h.Name) && (h.Size > maxEntry || h.Size == 0):
		return s.skip(fault(fmt.Sprintf("%d bytes are no image: want 1 to %d", h.Size, maxEntry)))
	case isImage(h.Name):
		s.now.path, s.now.archive, s.now.at, s.now.size = s.path+": "+h.Name, s.path, at, h.Size
		s.now.key = filepath.Base(s.path) + "/" + h.Name
	case n >= 0 && n < s.field:
		if h.Size > maxLabelText {
			return s.skip(fault(fmt.Sprintf("%d bytes are no label: want %d at most", h.Size, maxLabelText)))
		}
		text := make([]byte, h.Size)
		if _, err := io.ReadFull(content, text); err != nil {
			return datafile.ArchiveFault(s.path, at, h.Name, err)
		}
		class, problem := labelOf(field, text)
		if problem != "" {
			return s.skip(fault(problem))
		}
		s.now.class, s.field = class, n
	}
	return nil
}

// finish takes the sample whose files are all seen.
func (s *shard) finish() error {
	p, labelled, spoilt := s.now, s.field < len(labelFields), s.spoilt
	s.now, s.field, s.spoilt = picture{}, len(labelFields), false
	switch {
	case p.size > 0 && labelled:
		s.samples = append(s.samples, p)
	case spoilt: // it is counted
	case p.size > 0:
		return s.skip(datafile.Errorf(s.path, p.at, "sample %s has no label: want a file .cls, .json or .txt beside the image", s.key))
	case labelled:
		return s.skip(datafile.Errorf(s.path, 0, "sample %s has no image: want a file .jpg, .jpeg or .png beside the label", s.key))
	case s.key != "":
		s.left.Add("file of no sample", s.path+": "+s.key)
	}
	return nil
}

// labelOf is the class that a file says, as text.
func labelOf(field string, text []byte) (class, problem string) {
	if field == "json" {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(text, &all); err != nil {
			return "", err.Error()
		}
		for _, name := range []string{"label", "cls", "class", "target"} {
			if v, ok := all[name]; ok {
				if json.Unmarshal(v, &class) != nil { // no text
					class = string(v)
				}
				text = []byte(class)
				break
			}
		}
		if class == "" {
			return "", "no field label, cls, class or target"
		}
	}
	class = strings.TrimSpace(string(text))
	if class == "" || len(class) > 256 || strings.ContainsRune(class, '\n') {
		return "", "want a class of 1 to 256 bytes in one line"
	}
	return class, ""
}

// indexShards lists the samples of all shards, several at once. Bad samples are counted in the
// order of the shards.
func indexShards(names []string, threads int, bad *datafile.Skips, left *datafile.LeftOuts) ([]picture, error) {
	shards, errs := make([]shard, len(names)), make([]error, len(names))
	var wait sync.WaitGroup
	for t := range min(threads, len(names)) {
		wait.Go(func() {
			for i := t; i < len(names); i += threads {
				shards[i] = shard{path: names[i], most: bad.Max}
				errs[i] = shards[i].index()
			}
		})
	}
	wait.Wait()
	var all []picture
	for i, s := range shards {
		for _, fault := range s.faults {
			if err := bad.Skip(fault); err != nil {
				return nil, err
			}
		}
		if errs[i] != nil {
			return nil, errs[i]
		}
		left.Merge(s.left)
		all = append(all, s.samples...)
	}
	return all, nil
}

func findShards(c Config) error {
	_, _, err := shardsOf(c)
	return err
}

// shardsOf are the shards to train on and those to evaluate on, if there are any.
func shardsOf(c Config) (train, eval []string, err error) {
	if c.TrainFile != "" && c.Dir != "" {
		return nil, nil, setting.Errorf(datafile.TrainFilePath, "%s with %v %s: name one of both", c.TrainFile, datafile.DirPath, c.Dir)
	}
	if c.EvalFile != "" && c.Split != 0 {
		return nil, nil, setting.Errorf(datafile.SplitPath, "%s with %v %s: there is nothing to hold out", quantity.Exact(c.Split), datafile.EvalFilePath, c.EvalFile)
	}
	if train, err = shardNames(cmp.Or(c.TrainFile, c.Dir)); err == nil && c.EvalFile != "" {
		eval, err = shardNames(c.EvalFile)
	}
	if err != nil {
		err = fmt.Errorf("shards: %w", err)
	}
	return train, eval, err
}

// openShards lists the samples of shards; their images are read and decoded when they are needed.
func openShards(c Config, bad *datafile.Skips) (*Dataset, error) {
	train, eval, err := shardsOf(c)
	if err != nil {
		return nil, err
	}
	var left datafile.LeftOuts
	samples, err := indexShards(train, c.threads(), bad, &left)
	var others []picture
	if err == nil {
		others, err = indexShards(eval, c.threads(), bad, &left)
	}
	if err != nil {
		return nil, fmt.Errorf("shards: %w", err)
	}
	if len(samples) == 0 || len(eval) > 0 && len(others) == 0 || len(samples)+len(others) > datafile.MaxElements {
		return nil, fmt.Errorf("shards: %d samples in %d files to train on and %d in %d to evaluate on: want some", len(samples), len(train), len(others), len(eval))
	}
	labels, classes, words, err := classesOf(samples, others)
	if err != nil {
		return nil, err
	}
	sizes := balance(labels[:len(samples)], classes, words)
	size := or(c.ImageSize, 224)
	n, share := len(samples), cmp.Or(c.Split, usualSplit)
	s := &Dataset{Classes: classes, Words: words, left: left.Sorted(), Notes: []string{fmt.Sprintf("%s in %s, one of %s each", quantity.Count(n, "sample"), quantity.Count(len(train), "shard"), quantity.Count(classes, "class"))}}
	s.Notes = append(s.Notes, sizes...)
	if len(eval) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("evaluates on %s in %s", quantity.Count(len(others), "sample"), quantity.Count(len(eval), "shard")))
	} else {
		s.Notes = append(s.Notes, fmt.Sprintf("held out for evaluation: a share of %s (%v)", quantity.Exact(share), datafile.SplitPath))
	}
	return s, s.openParts(c, bad, [2][]picture{samples, others}, [2][]int32{labels[:n], labels[n:]}, func(pictures [2][]picture, labels [2][]int32) (train, other Source, err error) {
		train = newEncoded(pictures[0], labels[0], size, bad)
		if len(eval) == 0 {
			return Split(train, share)
		}
		return train, newEncoded(pictures[1], labels[1], size, bad), nil
	})
}

// classesOf numbers the classes of samples: by themselves where all are small numbers, else in the order of words.
func classesOf(train, eval []picture) (labels []int32, classes int, words []string, err error) {
	all := slices.Concat(train, eval)
	for _, p := range all {
		n, err := strconv.Atoi(p.class)
		if err != nil || n < 0 || n >= table.MaxClasses {
			labels = nil
			break
		}
		labels, classes = append(labels, int32(n)), max(classes, n+1)
	}
	if labels != nil {
		return labels, classes, nil, nil
	}
	for _, p := range train {
		words = append(words, p.class)
	}
	slices.Sort(words)
	words = slices.Compact(words)
	if len(words) > table.MaxClasses {
		return nil, 0, nil, fmt.Errorf("shards: %d classes: want %d at most", len(words), table.MaxClasses)
	}
	for _, p := range eval {
		if _, ok := slices.BinarySearch(words, p.class); !ok {
			return nil, 0, nil, fmt.Errorf("shards: %s: class %q is not among the %d classes to train on", p.path, p.class, len(words))
		}
	}
	return labelsOf(all, words), len(words), words, nil
}
