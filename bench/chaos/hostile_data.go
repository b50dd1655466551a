package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"strings"
)

// once is the end of a command line that trains for a moment in one process.
var once = []string{"--epochs", "1", "--threads", "1", "--batch", "8"}

// idx is a file of IDX: a magic number, sizes and bytes.
func idx(magic uint32, sizes []uint32, content []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, magic)
	for _, n := range sizes {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return append(out, content...)
}

const idxImages, idxLabels = 0x803, 0x801

// digits writes a folder of MNIST with 40 images, of which one file is changed, and returns its command line.
func (t *trap) digits(changed string, content []byte) []string {
	labels := bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 4)
	files := map[string][]byte{
		"train-images-idx3-ubyte": idx(idxImages, []uint32{40, 28, 28}, t.bytes(40*28*28)), "train-labels-idx1-ubyte": idx(idxLabels, []uint32{40}, labels),
		"t10k-images-idx3-ubyte": idx(idxImages, []uint32{40, 28, 28}, t.bytes(40*28*28)), "t10k-labels-idx1-ubyte": idx(idxLabels, []uint32{40}, labels),
	}
	delete(files, strings.TrimSuffix(changed, ".gz"))
	files[changed] = content
	for name, b := range files {
		t.write("mnist/"+name, b)
	}
	return with([]string{"train", "mnist", "--data", t.dir + "/mnist"}, once...)
}

// badImages is a folder of digits with other training images.
func badImages(content func(t *trap) []byte) func(t *trap) []string {
	return func(t *trap) []string { return t.digits("train-images-idx3-ubyte", content(t)) }
}

// zipped compresses what write writes.
func zipped(write func(w io.Writer)) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	write(w)
	w.Close()
	return b.Bytes()
}

// zeros writes many of them.
func zeros(w io.Writer, mib int) {
	block := make([]byte, 1<<20)
	for range mib {
		w.Write(block)
	}
}

var (
	imagesFile = []string{"train-images-idx3-ubyte"}
	labelsFile = []string{"train-labels-idx1-ubyte"}
)

var hostileDigits = []hostile{
	{name: "IDX: wrong magic number", blame: imagesFile, make: badImages(func(t *trap) []byte { return idx(0x1234, []uint32{40, 28, 28}, t.bytes(40*784)) })},
	{name: "IDX: four billion images", blame: imagesFile, make: badImages(func(t *trap) []byte { return idx(idxImages, []uint32{1<<32 - 1, 28, 28}, t.bytes(40*784)) })},
	{name: "IDX: images of 0 x 0", blame: imagesFile, make: badImages(func(*trap) []byte { return idx(idxImages, []uint32{40, 0, 0}, nil) })},
	{name: "IDX: sizes whose product overflows", blame: imagesFile, make: badImages(func(t *trap) []byte { return idx(idxImages, []uint32{1 << 31, 1 << 31, 4}, t.bytes(100)) })},
	{name: "IDX: cut", blame: imagesFile, make: badImages(func(t *trap) []byte { return idx(idxImages, []uint32{40, 28, 28}, t.bytes(t.rng.IntN(40*784))) })},
	{name: "IDX: empty", blame: imagesFile, make: badImages(func(*trap) []byte { return nil })},
	{name: "IDX: more bytes than it says", blame: imagesFile, make: badImages(func(t *trap) []byte { return idx(idxImages, []uint32{40, 28, 28}, t.bytes(40*784+1+t.rng.IntN(99))) })},
	{name: "IDX: fewer labels than images", blame: append(imagesFile, labelsFile...), make: func(t *trap) []string {
		return t.digits("train-labels-idx1-ubyte", idx(idxLabels, []uint32{39}, make([]byte, 39)))
	}},
	{name: "IDX: label 200", blame: labelsFile, make: func(t *trap) []string {
		return t.digits("train-labels-idx1-ubyte", idx(idxLabels, []uint32{40}, bytes.Repeat([]byte{200}, 40)))
	}},
	{name: "gzip: cut", blame: imagesFile, make: func(t *trap) []string {
		b := zipped(func(w io.Writer) { w.Write(idx(idxImages, []uint32{40, 28, 28}, t.bytes(40*784))) })
		return t.digits("train-images-idx3-ubyte.gz", b[:len(b)/2])
	}},
	{name: "gzip: garbage", blame: imagesFile, make: func(t *trap) []string { return t.digits("train-images-idx3-ubyte.gz", t.bytes(500)) }},
	{name: "gzip: a bomb behind 40 images", blame: imagesFile, make: func(t *trap) []string {
		return t.digits("train-images-idx3-ubyte.gz", zipped(func(w io.Writer) {
			w.Write(idx(idxImages, []uint32{40, 28, 28}, nil))
			zeros(w, 1500)
		}))
	}},
	{name: "gzip: a bomb that says that it is 1.5 GiB", blame: imagesFile, make: func(t *trap) []string {
		return t.digits("train-images-idx3-ubyte.gz", zipped(func(w io.Writer) {
			w.Write(idx(idxImages, []uint32{2 << 20, 28, 28}, nil))
			zeros(w, 1000)
		}))
	}},
}

// picture is a PNG of random pixels.
func (t *trap) picture(wide, high int) []byte {
	im := image.NewRGBA(image.Rect(0, 0, wide, high))
	copy(im.Pix, t.bytes(len(im.Pix)))
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil && t.err == nil {
		t.err = err
	}
	return b.Bytes()
}

// huge is a PNG that says that it is of 65,535 x 65,535 pixels, in a header that is whole.
func (t *trap) huge() []byte {
	b := t.picture(32, 32)
	binary.BigEndian.PutUint32(b[16:], 65535)
	binary.BigEndian.PutUint32(b[20:], 65535)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

// photo is a JPEG.
func (t *trap) photo(wide, high int) []byte {
	im := image.NewRGBA(image.Rect(0, 0, wide, high))
	copy(im.Pix, t.bytes(len(im.Pix)))
	var b bytes.Buffer
	if err := jpeg.Encode(&b, im, nil); err != nil && t.err == nil {
		t.err = err
	}
	return b.Bytes()
}

// tree writes a folder of images with one more in training, and returns its command line.
func (t *trap) tree(name string, content []byte) []string {
	for _, split := range []string{"train", "test"} {
		for i := range 20 {
			t.write("tree/"+split+"/"+string(rune('a'+i%10))+"/"+string(rune('a'+i))+".png", t.picture(32, 32))
		}
	}
	t.write("tree/train/a/"+name, content)
	return with([]string{"train", "cifar-resnet20", "--data", t.dir + "/tree"}, once...)
}

// badPicture is a tree with one image more.
func badPicture(name string, content func(t *trap) []byte) func(t *trap) []string {
	return func(t *trap) []string { return t.tree(name, content(t)) }
}

// batches writes CIFAR's files with given content of one.
func (t *trap) batches(content []byte) []string {
	whole := t.bytes(20 * 3073)
	for i := range 20 {
		whole[i*3073] = byte(i % 10)
	}
	for _, name := range []string{"data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"} {
		t.write("cifar/"+name+".bin", whole)
	}
	t.write("cifar/data_batch_1.bin", content)
	return with([]string{"train", "cifar-resnet20", "--data", t.dir + "/cifar"}, once...)
}

// archived writes a .tar.gz and returns its command line.
func (t *trap) archived(fill func(w *tar.Writer)) []string {
	path := t.write("data.tar.gz", zipped(func(w io.Writer) {
		archive := tar.NewWriter(w)
		fill(archive)
		archive.Flush()
	}))
	return with([]string{"train", "cifar-resnet20", "--data", path}, once...)
}

var (
	archiveFile = []string{"data.tar.gz"}
	batchFile   = []string{"data_batch_1.bin"}
)

var hostileImages = []hostile{
	{name: "CIFAR: half a record", blame: batchFile, make: func(t *trap) []string { return t.batches(t.bytes(3073*3 + 1500)) }},
	{name: "CIFAR: label 255", blame: batchFile, make: func(t *trap) []string { return t.batches(bytes.Repeat([]byte{255}, 3073*3)) }},
	{name: "CIFAR: empty file", blame: batchFile, mayTrain: []string{"80 + 20 samples"}, make: func(t *trap) []string { return t.batches(nil) }},
	{name: "PNG: 65,535 x 65,535", blame: []string{"x.png"}, make: badPicture("x.png", (*trap).huge)},
	{name: "PNG: cut", blame: []string{"x.png"}, make: badPicture("x.png", func(t *trap) []byte { return t.picture(32, 32)[:200] })},
	{name: "PNG: garbage", blame: []string{"x.png"}, make: badPicture("x.png", func(t *trap) []byte { return t.bytes(900) })},
	{name: "PNG: 31 x 32 among 32 x 32", blame: []string{"x.png"}, make: badPicture("x.png", func(t *trap) []byte { return t.picture(31, 32) })},
	{name: "JPEG: cut", blame: []string{"x.jpg"}, make: badPicture("x.jpg", func(t *trap) []byte { return t.photo(32, 32)[:400] })},
	{name: "JPEG: 65,500 x 65,500", blame: []string{"x.jpg"}, make: badPicture("x.jpg", func(t *trap) []byte {
		b := t.photo(32, 32)
		at := bytes.Index(b, []byte{0xff, 0xc0}) // the frame's header: length, depth, height, width
		binary.BigEndian.PutUint16(b[at+5:], 65500)
		binary.BigEndian.PutUint16(b[at+7:], 65500)
		return b
	})},
	{name: "images: a folder without any", blame: []string{"/tree"}, make: func(t *trap) []string {
		t.write("tree/train/a/readme.txt", nil)
		return with([]string{"train", "cifar-resnet20", "--data", t.dir + "/tree"}, once...)
	}},
	{name: "tar.gz: garbage", blame: archiveFile, make: func(t *trap) []string {
		return with([]string{"train", "cifar-resnet20", "--data", t.write("data.tar.gz", t.bytes(4000))}, once...)
	}},
	{name: "tar.gz: an entry that says that it is 1 TiB", blame: archiveFile, make: func(t *trap) []string {
		return t.archived(func(w *tar.Writer) {
			w.WriteHeader(&tar.Header{Name: "data_batch_1.bin", Size: 1 << 40, Mode: 0o644})
			w.Write(t.bytes(3073))
		})
	}},
	{name: "tar.gz: a bomb of 1.5 GiB", blame: archiveFile, make: func(t *trap) []string {
		return t.archived(func(w *tar.Writer) {
			w.WriteHeader(&tar.Header{Name: "data_batch_1.bin", Size: 1500 << 20, Mode: 0o644})
			zeros(w, 1500)
		})
	}},
	{name: "tar.gz: names that climb out of it", blame: archiveFile, make: func(t *trap) []string {
		return t.archived(func(w *tar.Writer) {
			for _, name := range []string{"../../../../etc/chaos.png", "/etc/chaos.png", "train/../../a/x.png"} {
				w.WriteHeader(&tar.Header{Name: name, Size: 3, Mode: 0o644})
				w.Write([]byte("png"))
			}
		})
	}},
	{name: "tar.gz: links in a loop", blame: archiveFile, make: func(t *trap) []string {
		return t.archived(func(w *tar.Writer) {
			w.WriteHeader(&tar.Header{Name: "train/a/x.png", Linkname: "y.png", Typeflag: tar.TypeSymlink})
			w.WriteHeader(&tar.Header{Name: "train/a/y.png", Linkname: "x.png", Typeflag: tar.TypeSymlink})
		})
	}},
	{name: "zip in place of a .tar.gz", blame: archiveFile, make: func(t *trap) []string {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		f, _ := w.Create("data_batch_1.bin")
		f.Write(t.bytes(3073))
		w.Close()
		return with([]string{"train", "cifar-resnet20", "--data", t.write("data.tar.gz", b.Bytes())}, once...)
	}},
}

// lines writes a file of Criteo's lines, behind given ones, and returns its command line.
func (t *trap) lines(bad string) []string {
	good := strings.Repeat("1\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13"+strings.Repeat("\t68fd1e64", 26)+"\n", 64)
	path := t.write("train.tsv", []byte(good+bad))
	return with([]string{"train", "ctr-dnn", "--train-file", path, "--eval-file", t.write("test.tsv", []byte(good)), "--set", "data.table-rows=1000"}, once...)
}

// badLine is a file of Criteo with one line more.
func badLine(text string) func(t *trap) []string {
	return func(t *trap) []string { return t.lines(text) }
}

var (
	linesFile = []string{"train.tsv"}
	category  = strings.Repeat("\t68fd1e64", 25)
	numbers   = "\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13"
)

var hostileLines = []hostile{
	{name: "Criteo: few columns", blame: linesFile, make: badLine("1\t2\t3\n")},
	{name: "Criteo: many columns", blame: linesFile, make: badLine("1" + strings.Repeat("\t1", 500) + "\n")},
	{name: "Criteo: a category that is no number", blame: linesFile, make: badLine("1\t1" + numbers + category + "\tzebra\n")},
	{name: "Criteo: a number beyond any", blame: linesFile, make: badLine("1\t" + strings.Repeat("9", 400) + numbers + category + "\t68fd1e64\n")},
	{name: "Criteo: NaN and infinity as numbers", blame: linesFile, make: badLine("1\tNaN\tInf" + numbers[2:] + category + "\t68fd1e64\n")},
	{name: "Criteo: label 7", blame: linesFile, make: badLine("7\t1" + numbers + category + "\t68fd1e64\n")},
	{name: "Criteo: zero bytes", blame: linesFile, make: badLine(strings.Repeat("\x00", 5000) + "\n")},
	{name: "Criteo: a line of 100 MB", blame: linesFile, make: badLine("1\t" + strings.Repeat("1", 100<<20))},
	{name: "Criteo: random bytes", blame: linesFile, make: func(t *trap) []string { return t.lines(string(t.bytes(5000))) }},
	{name: "Criteo: more bad lines than data.max-bad-records", blame: linesFile, make: func(t *trap) []string {
		return with(t.lines(strings.Repeat("bad\n", 20)), "--set", "data.max-bad-records=19")
	}},
	{name: "Criteo: as many bad lines as data.max-bad-records", blame: nil, mayTrain: []string{"20 bad", "20 lines", "bad lines"}, make: func(t *trap) []string {
		return with(t.lines(strings.Repeat("bad\n", 20)), "--set", "data.max-bad-records=20")
	}},
	{name: "Criteo: streamed, few columns", blame: linesFile, make: func(t *trap) []string { return with(t.lines("1\t2\t3\n"), "--stream") }},
	{name: "Criteo: empty file", blame: []string{"empty.tsv"}, make: func(t *trap) []string {
		args := t.lines("")
		args[3] = t.write("empty.tsv", nil)
		return args
	}},
	{name: "Criteo: blank lines alone", blame: []string{"empty.tsv"}, make: func(t *trap) []string {
		args := t.lines("")
		args[3] = t.write("empty.tsv", bytes.Repeat([]byte("\n"), 1000))
		return args
	}},
	{name: "text: an empty file", blame: []string{"train.txt"}, make: func(t *trap) []string {
		t.write("text/train.txt", nil)
		t.write("text/test.txt", t.bytes(5000))
		return with([]string{"train", "gpt-mini", "--data", t.dir + "/text"}, once...)
	}},
}

// file is a command line whose training data are a given path.
func (t *trap) file(path string) []string {
	args := t.lines("")
	args[3] = path
	return args
}

var hostileFiles = []hostile{
	{name: "a FIFO as data", blame: []string{"fifo"}, make: func(t *trap) []string {
		path := t.dir + "/fifo"
		t.err = makeFIFO(path)
		return t.file(path)
	}},
	{name: "a folder as data", blame: []string{"folder"}, make: func(t *trap) []string {
		t.write("folder/x", nil)
		return t.file(t.dir + "/folder")
	}},
	{name: "/dev/zero as data", blame: []string{"/dev/zero"}, make: func(t *trap) []string { return t.file("/dev/zero") }},
	{name: "/dev/zero as data, streamed", blame: []string{"/dev/zero"}, make: func(t *trap) []string { return with(t.file("/dev/zero"), "--stream") }},
	{name: "/proc/self/mem as data", blame: []string{"/proc/self/mem"}, make: func(t *trap) []string { return t.file("/proc/self/mem") }},
	{name: "a file that may not be read", blame: []string{"secret"}, skip: isRoot, make: func(t *trap) []string {
		path := t.write("secret", []byte("1"))
		t.err = os.Chmod(path, 0)
		return t.file(path)
	}},
	{name: "links in a loop as data", blame: []string{"loop"}, make: func(t *trap) []string {
		path := t.dir + "/loop"
		t.err = os.Symlink(path, path)
		return t.file(path)
	}},
	{name: "no such file", blame: []string{"nowhere"}, make: func(t *trap) []string { return t.file(t.dir + "/nowhere") }},
	{name: "a folder of data that leads into itself", blame: []string{"/tree"}, make: func(t *trap) []string {
		t.write("tree/train/a/readme", nil)
		t.err = os.Symlink("..", t.dir+"/tree/train/a/up")
		return with([]string{"train", "cifar-resnet20", "--data", t.dir + "/tree"}, once...)
	}},
}

func isRoot() string {
	if os.Geteuid() == 0 {
		return "root may read anything"
	}
	return ""
}
