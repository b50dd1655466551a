package images

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
)

// Limits of the files of a pattern, and of the text of a label.
const (
	maxShards    = 1 << 16
	MaxLabelText = 1 << 20
)

// ShardNames returns the files of a pattern: {000..146} and {a,b} in braces, *, ? and [] as in
// filepath.Match, several patterns separated by "::".
func ShardNames(pattern string) ([]string, error) {
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
	named := make(map[string]bool)
	for _, name := range out {
		if _, err := pathname.Check(name); err != nil {
			return nil, err
		}
		same, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		if named[same] {
			return nil, fmt.Errorf("%s: the pattern names the shard twice, which would train on samples that are held out: name it once", name)
		}
		named[same] = true
		if !strings.EqualFold(filepath.Ext(name), ".tar") {
			return nil, fmt.Errorf("%s: want shards that end in .tar, which are not compressed: images in them are", name)
		}
	}
	return out, nil
}

// braced expands the braces of a name.
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

// IsShards reports whether a name is of shards, not of the archive of a tree: a pattern, or an
// archive with an image and its label among the first files.
func IsShards(path string) bool {
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
	kinds := map[string]int{} // by key, bits: 1 image, 2 label
	for range 8 {
		h, err := in.Next()
		if err != nil || slices.ContainsFunc(strings.Split(h.Name, "/"), isPart) {
			return false
		}
		key, field := member(h.Name)
		if IsImage(h.Name) {
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

// labelFields are the file endings of a sample's label, in order of preference.
var labelFields = []string{"cls", "json", "txt"} // never written

// member splits the name of a file at its first dot into the sample and the field.
func member(name string) (key, field string) {
	dir, base := filepath.Split(filepath.FromSlash(name))
	base, field, _ = strings.Cut(base, ".")
	return dir + base, strings.ToLower(field)
}

// shard is an archive with its index.
type shard struct {
	path string
	size int64
	most int // limit of faults left out

	samples []Picture
	faults  []error           // samples left out
	leftOut datafile.LeftOuts // files without a sample
	key     string            // current sample
	now     Picture
	spoilt  bool // current sample has a bad file
	field   int  // index in labelFields of the current label; len(labelFields): no label
}

// index lists the samples of the shard. It reads labels and seeks past images.
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
	in := tar.NewReader(f) // a seeking reader
	end := int64(0)
	for {
		h, err := in.Next()
		at, seekErr := f.Seek(0, io.SeekCurrent)
		if seekErr != nil {
			return seekErr
		}
		if err == io.EOF && at-end < 512 {
			err = io.ErrUnexpectedEOF // archives end with zeros
		}
		if err == io.EOF {
			return s.finish()
		}
		if err != nil {
			return datafile.ArchiveFault(s.path, at, cmp.Or(s.key, "the beginning"), err)
		}
		if h.Typeflag != tar.TypeReg {
			if kind := datafile.EntryKind(h); kind != "" {
				s.leftOut.Add(kind, s.path+": "+h.Name)
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

// skip records a fault of the current sample. Above the limit it returns the fault.
func (s *shard) skip(fault error) error {
	s.faults, s.spoilt = append(s.faults, fault), true
	if len(s.faults) > s.most {
		return fault
	}
	return nil
}

// add processes a file of the shard.
func (s *shard) add(h *tar.Header, at int64, content io.Reader) error {
	if datafile.IsHidden(h.Name) {
		s.leftOut.Add(datafile.HiddenFile, s.path+": "+h.Name)
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
	case IsImage(h.Name) && s.now.Size > 0:
		return s.skip(fault("a second image of the sample"))
	case IsImage(h.Name) && (h.Size > MaxEntry || h.Size == 0):
		return s.skip(fault(fmt.Sprintf("%d bytes are no image: want 1 to %d", h.Size, MaxEntry)))
	case IsImage(h.Name):
		s.now.Path, s.now.archive, s.now.At, s.now.Size = s.path+": "+h.Name, s.path, at, h.Size
		s.now.Key = filepath.Base(s.path) + "/" + h.Name
	case n >= 0 && n < s.field:
		if h.Size > MaxLabelText {
			return s.skip(fault(fmt.Sprintf("%d bytes are no label: want %d at most", h.Size, MaxLabelText)))
		}
		text := make([]byte, h.Size)
		if _, err := io.ReadFull(content, text); err != nil {
			return datafile.ArchiveFault(s.path, at, h.Name, err)
		}
		class, problem := labelOf(field, text)
		if problem != "" {
			return s.skip(fault(problem))
		}
		s.now.Class, s.field = class, n
	}
	return nil
}

// finish adds the current sample.
func (s *shard) finish() error {
	p, labelled, spoilt := s.now, s.field < len(labelFields), s.spoilt
	s.now, s.field, s.spoilt = Picture{}, len(labelFields), false
	switch {
	case p.Size > 0 && labelled:
		s.samples = append(s.samples, p)
	case spoilt: // counted as a fault
	case p.Size > 0:
		return s.skip(datafile.Errorf(s.path, p.At, "sample %s has no label: want a file .cls, .json or .txt beside the image", s.key))
	case labelled:
		return s.skip(datafile.Errorf(s.path, 0, "sample %s has no image: want a file .jpg, .jpeg or .png beside the label", s.key))
	case s.key != "":
		s.leftOut.Add("file of no sample", s.path+": "+s.key)
	}
	return nil
}

// labelOf returns the class in a label file, as text.
func labelOf(field string, text []byte) (class, problem string) {
	if field == "json" {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(text, &all); err != nil {
			return "", err.Error()
		}
		for _, name := range []string{"label", "cls", "class", "target"} {
			if v, ok := all[name]; ok {
				if json.Unmarshal(v, &class) != nil { // not a string
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

// IndexShards lists the samples of all shards, on several goroutines. Bad samples are counted in
// the order of the shards.
func IndexShards(names []string, threads int, bad *datafile.Skips, left *datafile.LeftOuts) ([]Picture, error) {
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
	var all []Picture
	for i, s := range shards {
		for _, fault := range s.faults {
			if err := bad.Skip(fault); err != nil {
				return nil, err
			}
		}
		if errs[i] != nil {
			return nil, errs[i]
		}
		left.Merge(s.leftOut)
		all = append(all, s.samples...)
	}
	return all, nil
}

// ClassesOf numbers the classes of samples: by value if all are small numbers, otherwise in the
// order of words.
func ClassesOf(train, eval []Picture) (labels []int32, classes int, words []string, err error) {
	all := slices.Concat(train, eval)
	for _, p := range all {
		n, err := strconv.Atoi(p.Class)
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
		words = append(words, p.Class)
	}
	slices.Sort(words)
	words = slices.Compact(words)
	if len(words) > table.MaxClasses {
		return nil, 0, nil, fmt.Errorf("shards: %d classes: want %d at most", len(words), table.MaxClasses)
	}
	for _, p := range eval {
		if _, ok := slices.BinarySearch(words, p.Class); !ok {
			return nil, 0, nil, fmt.Errorf("shards: %s: class %q is not among the %d classes to train on", p.Path, p.Class, len(words))
		}
	}
	return LabelsOf(all, words), len(words), words, nil
}
