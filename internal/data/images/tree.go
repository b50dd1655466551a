package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Picture is one encoded image: a file, or an entry of an archive.
type Picture struct {
	Path    string // file, or archive and entry, for errors
	Key     string // path in the part's folder: the sort key of the set
	Class   string
	Encoded []byte // nil: read from the file

	archive  string // archive file that holds the image, Size bytes from offset At on
	At, Size int64
}

// Tree is an image folder: the pictures of each part (train, val, …).
type Tree struct {
	root     string
	archived bool // root is an archive
	parts    map[string][]Picture
	Skipped  datafile.LeftOuts // files and folders of parts without a sample
	folders  map[string]bool   // all class folders, as PART/CLASS
	hidden   map[string]bool   // counted hidden folders
	room     int64             // remaining bytes for encoded images in memory
}

// maxKept limits the encoded images of an archive, in bytes of memory: a small file can decompress
// to any size.
const maxKept = 1 << 36

func newTree(root string) *Tree {
	return &Tree{root: root, parts: map[string][]Picture{}, folders: map[string]bool{}, hidden: map[string]bool{}, room: maxKept}
}

func isPart(name string) bool { return name == "train" || slices.Contains(datafile.EvalParts(), name) }

// IsImage reports whether a visible file has an ending of JPEG or PNG.
func IsImage(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".jpg", ".jpeg", ".png":
		return !strings.HasPrefix(filepath.Base(name), ".") // ._NAME: metadata of macOS
	}
	return false
}

// add processes a file of a part: an image in a class folder is a sample, other files are counted.
// Files outside of the parts are ignored.
func (t *Tree) add(name string, p Picture) {
	part, below := splitPart(name)
	switch {
	case len(below) == 0:
	case datafile.IsHidden(strings.Join(below, "/")):
		t.addHidden(part, below)
	case len(below) > 1 && IsImage(name):
		p.Class, p.Key = below[0], strings.Join(below, "/")
		t.parts[part] = append(t.parts[part], p)
	default:
		t.addFolder(part, below[:len(below)-1])
		t.Skipped.Add(leftKind(name), part+"/"+strings.Join(below, "/"))
	}
}

// splitPart splits a path at the first folder that is a part, such as train.
func splitPart(name string) (part string, below []string) {
	dirs := strings.Split(filepath.ToSlash(name), "/")
	i := slices.IndexFunc(dirs[:len(dirs)-1], isPart)
	if i < 0 {
		return "", nil
	}
	return dirs[i], dirs[i+1:]
}

// addFolder records a folder of a part, which can be a class.
func (t *Tree) addFolder(part string, below []string) {
	switch {
	case len(below) == 0 || below[0] == "":
	case datafile.IsHidden(strings.Join(below, "/")):
		t.addHidden(part, append(slices.Clone(below), ""))
	default:
		t.folders[part+"/"+below[0]] = true
	}
}

// addHidden counts a hidden file, or the hidden folder that contains it, each folder once.
func (t *Tree) addHidden(part string, below []string) {
	last := len(below) - 1
	i := slices.IndexFunc(below[:last], datafile.IsHidden)
	path := part + "/" + strings.Join(below[:max(i, 0)+1], "/")
	switch {
	case i < 0:
		t.Skipped.Add(datafile.HiddenFile, part+"/"+strings.Join(below, "/"))
	case !t.hidden[path]:
		t.hidden[path] = true
		t.Skipped.Add(datafile.HiddenFolder, path)
	}
}

// leftKind returns the kind of a file that is not a sample.
func leftKind(name string) string {
	switch ending := strings.ToLower(filepath.Ext(name)); {
	case IsImage(name):
		return ending + " file outside of a class folder"
	case ending == "":
		return "file without an ending"
	default:
		return ending + " file"
	}
}

// finish counts class folders without an image.
func (t *Tree) finish() *Tree {
	for part, pictures := range t.parts {
		for _, p := range pictures {
			delete(t.folders, part+"/"+p.Class)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.folders)) {
		t.Skipped.Add(datafile.EmptyClass, path)
	}
	return t
}

// Notes describes how the tree was read. Train and eval are the pictures to train and to evaluate
// on.
func (t *Tree) Notes(train, eval []Picture) (notes []string) {
	used := t.EvalPart()
	for _, part := range datafile.EvalParts() {
		if n := len(t.parts[part]); n > 0 && part != used {
			notes = append(notes, fmt.Sprintf("evaluating on the images in %s, not on the %d in %s", used, n, part))
		}
	}
	evaluated := map[string]bool{}
	for _, p := range eval {
		evaluated[p.Class] = true
	}
	var absent []string
	for _, p := range train { // sorted by class
		if !evaluated[p.Class] {
			evaluated[p.Class], absent = true, append(absent, p.Class)
		}
	}
	if n := len(absent); n > 0 {
		if used == "" {
			used = "the held-out images"
		}
		names := strings.Join(absent[:min(n, datafile.MaxNames)], ", ")
		if n > datafile.MaxNames {
			names += fmt.Sprintf(" and %d more", n-datafile.MaxNames)
		}
		notes = append(notes, fmt.Sprintf("%s of train without an image in %s: %s", quantity.Count(n, "class"), used, names))
	}
	return notes
}

// MaxEntry is the maximum size of an image file.
const MaxEntry = 1 << 28

// readEntry reads an entry into memory.
func readEntry(path string, size int64, r io.Reader) ([]byte, error) {
	if size > MaxEntry {
		return nil, datafile.Errorf(path, 0, "%d bytes are no image: want %d at most", size, MaxEntry)
	}
	if size > 1<<20 { // memory grows with the content, not by the header
		return io.ReadAll(io.LimitReader(r, size))
	}
	content := make([]byte, size)
	_, err := io.ReadFull(r, content)
	return content, err
}

// openTreeFolder lists a folder.
func openTreeFolder(dir string) (*Tree, error) {
	t := newTree(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	parts := map[string]string{} // names of parts by their folders
	for _, e := range entries {
		if isPart(e.Name()) {
			parts[filepath.Join(dir, e.Name())] = e.Name()
		}
	}
	if len(classFolders(dir)) > 0 {
		parts[dir] = "train"
	}
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		if err := walkImages(part, &t.Skipped, func(below string, folder bool) bool {
			name := parts[part] + "/" + filepath.ToSlash(below)
			if !folder {
				t.add(name, Picture{Path: filepath.Join(part, below)})
				return true
			}
			t.addFolder(splitPart(name + "/"))
			return !datafile.IsHidden(name)
		}); err != nil {
			return nil, err
		}
	}
	return t.finish(), nil
}

// walkImages visits the files and folders below a folder in the order of their names, and enters a
// folder if visit returns true. Links to folders are followed, except a link to a folder above,
// which is counted.
func walkImages(root string, left *datafile.LeftOuts, visit func(below string, folder bool) bool) error {
	above := []os.FileInfo{}
	var walk func(below string) error
	walk = func(below string) error {
		dir := filepath.Join(root, below)
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(above, func(a os.FileInfo) bool { return os.SameFile(a, info) }) {
			left.Add("link to a folder that it is in", filepath.Join(filepath.Base(root), below))
			return nil
		}
		above = append(above, info)
		defer func() { above = above[:len(above)-1] }()
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			name := filepath.Join(below, e.Name())
			folder := e.IsDir()
			if e.Type()&fs.ModeSymlink != 0 {
				info, err := os.Stat(filepath.Join(root, name))
				folder = err == nil && info.IsDir()
			}
			if visit(name, folder) && folder {
				err = errors.Join(err, walk(name))
			}
		}
		return err
	}
	info, err := os.Stat(root)
	if err != nil || info.IsDir() {
		return errors.Join(err, walk(""))
	}
	visit("", false)
	return nil
}

// load reads the encoded bytes.
func (p *Picture) load() ([]byte, error) {
	if p.Encoded != nil {
		return p.Encoded, nil
	}
	if p.archive != "" {
		f, err := pathname.Open(p.archive)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readEntry(p.Path, p.Size, io.NewSectionReader(f, p.At, p.Size))
	}
	return pathname.Read(p.Path, MaxEntry)
}

// locate returns the place of a set of images: dir if it is an archive or function inside accepts
// it, otherwise the only archive in dir.
func locate(set, dir string, inside func(dir string) bool) (path string, archive bool, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: no folder or archive %s: %w; %w", set, dir, fs.ErrNotExist, imageAlternatives(set, dir))
		}
		return "", false, err
	}
	if !info.IsDir() {
		if _, err := pathname.Check(dir); err != nil {
			return "", false, fmt.Errorf("%s: %w", set, err)
		}
		if !datafile.IsArchive(dir) {
			return "", false, fmt.Errorf("%s: %s is neither a folder nor a .tar.gz, .tgz or .tar; %w", set, dir, imageAlternatives(set, filepath.Dir(dir)))
		}
		return dir, true, nil
	}
	if inside(dir) {
		return dir, false, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false, err
	}
	var archives []string
	for _, e := range entries {
		if !e.IsDir() && datafile.IsArchive(e.Name()) {
			archives = append(archives, filepath.Join(dir, e.Name()))
		}
	}
	switch len(archives) {
	case 1:
		return archives[0], true, nil
	case 0:
		return "", false, fmt.Errorf("%s: %s holds no such set: %w; %w", set, dir, fs.ErrNotExist, imageAlternatives(set, dir))
	}
	return "", false, fmt.Errorf("%s: %s holds %d archives: name the one to read", set, dir, len(archives))
}

func imageAlternatives(set, dir string) error {
	const tree = "CLASS/NAME.jpg, or train/CLASS/NAME.jpg and test/CLASS/NAME.jpg (or val/…; .png too; a .tar.gz with train/ is read as it is)"
	if set == "cifar10" {
		return setting.Errorf("", "want data_batch_1.bin to data_batch_5.bin and test_batch.bin, cifar-10-binary.tar.gz, or %s; fetch them with `ringo data cifar10 --out %s`, or train on images drawn by the program with %v %s", tree, dir, datafile.DirPath, datafile.Synthetic)
	}
	return setting.Errorf("", "want %s, or train on images drawn by the program with %v %s", tree, datafile.DirPath, datafile.Synthetic)
}

// hasTree reports whether a folder has the parts of a tree.
func hasTree(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "train"))
	return err == nil && info.IsDir()
}

// isTree reports whether a folder has the parts of a tree, or no part and folders of classes.
func isTree(dir string) bool { return hasTree(dir) || len(classFolders(dir)) > 0 }

// classFolders returns the folders of a folder without parts and archives that have an image.
func classFolders(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // without entries on error
	for _, e := range entries {
		if isPart(e.Name()) || !e.IsDir() && datafile.IsArchive(e.Name()) {
			return nil
		}
		below, _ := os.ReadDir(filepath.Join(dir, e.Name()))
		if !datafile.IsHidden(e.Name()) && slices.ContainsFunc(below, func(f os.DirEntry) bool { return IsImage(f.Name()) }) {
			names = append(names, e.Name())
		}
	}
	return names
}

// FindTree returns an error unless a folder or an archive has a set of images.
func FindTree(set, dir string) error {
	_, _, err := locate(set, dir, isTree)
	return err
}

// OpenTree lists the images of a folder, or reads those of an archive.
func OpenTree(set, dir string) (*Tree, error) {
	path, archive, err := locate(set, dir, isTree)
	if err != nil {
		return nil, err
	}
	if !archive {
		return openTreeFolder(path)
	}
	t := newTree(path)
	t.archived = true
	err = datafile.WalkArchive(path, t.keep(path), t.addSpecial)
	return t.finish(), err
}

// addSpecial processes an entry of an archive that is not a regular file.
func (t *Tree) addSpecial(h *tar.Header) {
	part, below := splitPart(h.Name)
	if h.Typeflag == tar.TypeDir {
		t.addFolder(splitPart(strings.TrimSuffix(h.Name, "/") + "/"))
	} else if kind := datafile.EntryKind(h); kind != "" && len(below) > 0 {
		t.Skipped.Add(kind, part+"/"+strings.Join(below, "/"))
	}
}

// keep returns the visitor that loads an archive's images into memory.
func (t *Tree) keep(archive string) func(name string, size int64, r io.Reader) error {
	return func(name string, size int64, r io.Reader) error {
		if _, below := splitPart(name); !IsImage(name) || datafile.IsHidden(strings.Join(below, "/")) {
			t.add(name, Picture{})
			return nil
		}
		full := archive + ": " + name
		if t.room -= size; t.room < 0 {
			return datafile.Errorf(full, 0, "the archive has more than %d GiB of images up to here, which are held in memory: unpack it, and name the folder", maxKept>>30)
		}
		content, err := readEntry(full, size, r)
		if err == nil {
			t.add(name, Picture{Path: full, Encoded: content})
		}
		return err
	}
}

// Check decodes the picture.
func (p *Picture) Check() error {
	content, err := p.load()
	if err == nil {
		_, _, err = decodeImage(p.Path, content)
	}
	return err
}
