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

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/setting"
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
	root  string
	parts map[string][]picture
	left  map[string]int // by what they are: files of parts that are left out
	room  int64          // bytes of encoded images that may still be kept in memory
}

// maxKept is how many bytes of encoded images an archive may have, which are held in
// memory: a small file can claim, and unpack to, any size.
const maxKept = 1 << 36

func newTree(root string) *tree {
	return &tree{root, map[string][]picture{}, map[string]int{}, maxKept}
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

// add files a path like …/train/CLASS/…/NAME.jpg. What else is in a part is counted; other paths
// are not ours, and hidden files nobody's.
func (t *tree) add(name string, p picture) {
	dirs := strings.Split(filepath.ToSlash(name), "/")
	ours := false
	for i, d := range dirs[:len(dirs)-1] {
		if !isPart(d) {
			continue
		}
		if i+2 < len(dirs) && isImage(name) {
			p.class, p.key = dirs[i+1], strings.Join(dirs[i+1:], "/")
			t.parts[d] = append(t.parts[d], p)
			return
		}
		ours = true
	}
	if ours && !strings.HasPrefix(dirs[len(dirs)-1], ".") {
		t.left[leftKind(name)]++
	}
}

// leftKind is how a file that is left out is counted.
func leftKind(name string) string {
	switch ending := strings.ToLower(filepath.Ext(name)); {
	case isImage(name):
		return ending + " outside of a class's folder"
	case ending == "":
		return "without an ending"
	default:
		return ending
	}
}

// leftOut tells of the files that are left out, "" where there are none.
func (t *tree) leftOut() string {
	total := 0
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(t.left)) {
		total += t.left[kind]
		kinds = append(kinds, fmt.Sprintf("%d %s", t.left[kind], kind))
	}
	switch total {
	case 0:
		return ""
	case 1:
		return "left out 1 file, which is no .jpg, .jpeg or .png in a class's folder: " + kinds[0]
	}
	return fmt.Sprintf("left out %d files, which are no .jpg, .jpeg or .png in a class's folder: %s", total, strings.Join(kinds, ", "))
}

// notes are what a person should know of how the tree was read.
func (t *tree) notes() (notes []string) {
	var used string
	for _, part := range evalParts() {
		switch n := len(t.parts[part]); {
		case n > 0 && used == "":
			used = part
		case n > 0:
			notes = append(notes, fmt.Sprintf("evaluating on the images in %s, not on the %d in %s", used, n, part))
		}
	}
	if left := t.leftOut(); left != "" {
		notes = append(notes, left)
	}
	return notes
}

// maxEntry is the largest image file that is taken for one.
const maxEntry = 1 << 28

// readEntry holds an entry in memory, but no more than comes.
func readEntry(path string, size int64, r io.Reader) ([]byte, error) {
	if size > maxEntry {
		return nil, &FormatError{path, 0, fmt.Sprintf("%d bytes are no image: want %d at most", size, maxEntry)}
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
		if resolved, err := filepath.EvalSymlinks(part); err == nil { // a linked part is usual
			part = resolved
		}
		err := filepath.WalkDir(part, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				below, _ := filepath.Rel(part, path)
				t.add(e.Name()+"/"+filepath.ToSlash(below), picture{path: path})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
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
		left := t.leftOut()
		if left != "" {
			left = "; " + left
		}
		return nil, nil, nil, fmt.Errorf("%s has %d images in train/CLASS/… and %d in test, val, validation or eval: both are needed (.jpg, .jpeg or .png)%s",
			t.root, len(train), len(eval), left)
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
		if !isArchive(dir) {
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
		if !e.IsDir() && isArchive(e.Name()) {
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
		return setting.Faultf("", "want data_batch_1.bin to data_batch_5.bin and test_batch.bin, cifar-10-binary.tar.gz, or %s; fetch them with `ringo data cifar10 --out %s`, or train on images drawn by the program with %v %s", tree, dir, dataDir, Synthetic)
	}
	return setting.Faultf("", "want %s, or train on images drawn by the program with %v %s", tree, dataDir, Synthetic)
}

// hasTree says whether a folder has the parts of a tree.
func hasTree(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "train"))
	return err == nil && info.IsDir()
}
