package data

import (
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

// picture is one encoded image: a file, or an archive's entry in memory.
type picture struct {
	path    string // of the file; of an archive and its entry, for errors
	key     string // path below the part's folder: the order of the set
	class   string
	encoded []byte // nil: to be read from the file

	archive  string // the file, of an image that lies in an archive: size bytes from one on
	at, size int64
}

// tree is an image folder: by part (train, val, …) its pictures.
type tree struct {
	root    string
	parts   map[string][]picture
	skipped datafile.LeftOuts // files and folders of parts that are no samples
	folders map[string]bool   // PART/CLASS of all class folders
	hidden  map[string]bool   // hidden folders that are counted
	room    int64             // bytes of encoded images that may still be kept in memory
}

// maxKept is how many bytes of encoded images an archive may have, which are held in
// memory: a small file can claim, and unpack to, any size.
const maxKept = 1 << 36

func newTree(root string) *tree {
	return &tree{root: root, parts: map[string][]picture{}, folders: map[string]bool{}, hidden: map[string]bool{}, room: maxKept}
}

// evalParts are the folders that can hold the evaluation set, the first choice
// first.
func evalParts() []string { return []string{"test", "val", "validation", "eval"} }

func isPart(name string) bool { return name == "train" || slices.Contains(evalParts(), name) }

func isImage(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".jpg", ".jpeg", ".png":
		return !strings.HasPrefix(filepath.Base(name), ".") // macOS leaves ._NAME beside files
	}
	return false
}

// add takes a file of a part: an image in a class folder is a sample, and other files are counted.
// Files outside of the parts are ignored.
func (t *tree) add(name string, p picture) {
	part, below := splitPart(name)
	switch {
	case len(below) == 0:
	case datafile.IsHidden(strings.Join(below, "/")):
		t.addHidden(part, below)
	case len(below) > 1 && isImage(name):
		p.class, p.key = below[0], strings.Join(below, "/")
		t.parts[part] = append(t.parts[part], p)
	default:
		t.addFolder(part, below[:len(below)-1])
		t.skipped.Add(leftKind(name), part+"/"+strings.Join(below, "/"))
	}
}

// splitPart splits a path at its first part, such as train.
func splitPart(name string) (part string, below []string) {
	dirs := strings.Split(filepath.ToSlash(name), "/")
	i := slices.IndexFunc(dirs[:len(dirs)-1], isPart)
	if i < 0 {
		return "", nil
	}
	return dirs[i], dirs[i+1:]
}

// addFolder notes a folder of a part, which may be that of a class.
func (t *tree) addFolder(part string, below []string) {
	switch {
	case len(below) == 0 || below[0] == "":
	case datafile.IsHidden(strings.Join(below, "/")):
		t.addHidden(part, append(slices.Clone(below), ""))
	default:
		t.folders[part+"/"+below[0]] = true
	}
}

// addHidden counts a hidden file, or once the hidden folder that it is in.
func (t *tree) addHidden(part string, below []string) {
	last := len(below) - 1
	i := slices.IndexFunc(below[:last], datafile.IsHidden)
	path := part + "/" + strings.Join(below[:max(i, 0)+1], "/")
	switch {
	case i < 0:
		t.skipped.Add(datafile.HiddenFile, part+"/"+strings.Join(below, "/"))
	case !t.hidden[path]:
		t.hidden[path] = true
		t.skipped.Add(datafile.HiddenFolder, path)
	}
}

// leftKind is the kind of a file that is no sample.
func leftKind(name string) string {
	switch ending := strings.ToLower(filepath.Ext(name)); {
	case isImage(name):
		return ending + " file outside of a class folder"
	case ending == "":
		return "file without an ending"
	default:
		return ending + " file"
	}
}

// finish counts class folders without an image.
func (t *tree) finish() *tree {
	for part, pictures := range t.parts {
		for _, p := range pictures {
			delete(t.folders, part+"/"+p.class)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.folders)) {
		t.skipped.Add(datafile.EmptyClass, path)
	}
	return t
}

// notes are sentences about how the tree was read: train and eval are its pictures to train on and
// to evaluate on.
func (t *tree) notes(train, eval []picture) (notes []string) {
	var used string
	for _, part := range evalParts() {
		switch n := len(t.parts[part]); {
		case n > 0 && used == "":
			used = part
		case n > 0:
			notes = append(notes, fmt.Sprintf("evaluating on the images in %s, not on the %d in %s", used, n, part))
		}
	}
	evaluated := map[string]bool{}
	for _, p := range eval {
		evaluated[p.class] = true
	}
	var absent []string
	for _, p := range train { // in the order of classes
		if !evaluated[p.class] {
			evaluated[p.class], absent = true, append(absent, p.class)
		}
	}
	if n := len(absent); n > 0 {
		names := strings.Join(absent[:min(n, datafile.MaxNames)], ", ")
		if n > datafile.MaxNames {
			names += fmt.Sprintf(" and %d more", n-datafile.MaxNames)
		}
		notes = append(notes, fmt.Sprintf("%s of train without an image in %s: %s", quantity.Count(n, "class"), used, names))
	}
	return notes
}

// maxEntry is the largest image file that is taken for one.
const maxEntry = 1 << 28

// readEntry holds an entry in memory, but no more than comes.
func readEntry(path string, size int64, r io.Reader) ([]byte, error) {
	if size > maxEntry {
		return nil, datafile.Errorf(path, 0, "%d bytes are no image: want %d at most", size, maxEntry)
	}
	if size > 1<<20 { // grown as it comes, whatever the header claims
		return io.ReadAll(io.LimitReader(r, size))
	}
	content := make([]byte, size)
	_, err := io.ReadFull(r, content)
	return content, err
}

// openTreeFolder lists a folder.
func openTreeFolder(dir string) (*tree, error) {
	t := newTree(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !isPart(e.Name()) {
			continue
		}
		part := filepath.Join(dir, e.Name())
		if err := walkImages(part, &t.skipped, func(below string, folder bool) bool {
			name := e.Name() + "/" + filepath.ToSlash(below)
			if !folder {
				t.add(name, picture{path: filepath.Join(part, below)})
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

// walkImages visits the files and folders below a folder in the order of their names. Links to
// folders are followed, but not those to a folder that they are in, which are counted. A folder is
// entered if visit returns true.
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

// split returns the training and the evaluation pictures, each in the order of
// their paths, and the classes by name, as the training part has them.
func (t *tree) split() (train, eval []picture, classes []string, err error) {
	train = t.parts["train"]
	for _, part := range evalParts() {
		if eval = t.parts[part]; len(eval) > 0 {
			break
		}
	}
	if len(train) == 0 || len(eval) == 0 {
		left := strings.Join(append([]string{""}, t.skipped.Sentences()...), "; ")
		return nil, nil, nil, fmt.Errorf("%s has %s in train/CLASS/… and %d in test, val, validation or eval: both are needed (.jpg, .jpeg or .png)%s",
			t.root, quantity.Count(len(train), "image"), len(eval), left)
	}
	order := func(a, b picture) int { return strings.Compare(a.key, b.key) }
	slices.SortFunc(train, order)
	slices.SortFunc(eval, order)
	for _, p := range train {
		classes = append(classes, p.class)
	}
	slices.Sort(classes)
	classes = slices.Compact(classes)
	for _, p := range eval {
		if _, ok := slices.BinarySearch(classes, p.class); !ok {
			return nil, nil, nil, fmt.Errorf("%s: class %q is not among the %d classes of the training images", p.path, p.class, len(classes))
		}
	}
	return train, eval, classes, nil
}

// spread is n pictures taken evenly from all, which are in the order of their
// classes: the first n could be of one. All, where n is 0 or not smaller.
func spread(all []picture, n int) []picture {
	if n <= 0 || n >= len(all) {
		return all
	}
	out := make([]picture, n)
	for i := range out {
		out[i] = all[(2*i+1)*len(all)/(2*n)]
	}
	return out
}

// labels are the pictures' classes by number.
func labelsOf(pictures []picture, classes []string) []int32 {
	labels := make([]int32, len(pictures))
	for i, p := range pictures {
		n, _ := slices.BinarySearch(classes, p.class)
		labels[i] = int32(n)
	}
	return labels
}

// load reads the picture's encoded bytes.
func (p *picture) load() ([]byte, error) {
	if p.encoded != nil {
		return p.encoded, nil
	}
	if p.archive != "" {
		f, err := pathname.Open(p.archive)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readEntry(p.path, p.size, io.NewSectionReader(f, p.at, p.size))
	}
	return pathname.Read(p.path, maxEntry)
}

// locate finds what holds a set of images: dir itself if it is an archive, a
// folder for which inside is true, or the one archive in it.
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
	const tree = "train/CLASS/NAME.jpg and test/CLASS/NAME.jpg (or val/…; .png too; a .tar.gz of that is read as it is)"
	if set == "cifar10" {
		return setting.Errorf("", "want data_batch_1.bin to data_batch_5.bin and test_batch.bin, cifar-10-binary.tar.gz, or %s; fetch them with `ringo data cifar10 --out %s`, or train on images drawn by the program with %v %s", tree, dir, datafile.DirPath, datafile.Synthetic)
	}
	return setting.Errorf("", "want %s, or train on images drawn by the program with %v %s", tree, datafile.DirPath, datafile.Synthetic)
}

// hasTree says whether a folder has the parts of a tree.
func hasTree(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "train"))
	return err == nil && info.IsDir()
}
