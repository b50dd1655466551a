package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
)

// oddTree is a folder of images of two classes: stripes across and stripes down.
type oddTree struct {
	trap *trap
	dir  string
	args []string
}

var stripes = []string{"across", "down"}

// striped is an image of a class, with a brightness of its own.
func (t *trap) striped(class, wide, high int) *image.RGBA {
	im, base := image.NewRGBA(image.Rect(0, 0, wide, high)), t.rng.IntN(60)
	for y := range high {
		for x := range wide {
			at := []int{y * 16 / high, x * 16 / wide}[class]
			v := uint8(base + 150*(at/2%2) + t.rng.IntN(30))
			im.Set(x, y, color.RGBA{v, v, v, 255})
		}
	}
	return im
}

func pngOf(im image.Image) []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, im) // a buffer takes all
	return b.Bytes()
}

func jpegOf(im image.Image) []byte {
	var b bytes.Buffer
	_ = jpeg.Encode(&b, im, nil)
	return b.Bytes()
}

func gifOf(im image.Image) []byte {
	var b bytes.Buffer
	_ = gif.Encode(&b, im, nil)
	return b.Bytes()
}

// pictures makes the sound folder: 24 images of each class to train, 6 to evaluate.
func (t *trap) pictures() *oddTree {
	o := &oddTree{trap: t, dir: filepath.Join(t.dir, "photos")}
	for class, name := range stripes {
		for i := range 30 {
			part := "train"
			if i >= 24 {
				part = "val"
			}
			t.write(fmt.Sprintf("photos/%s/%s/%02d.png", part, name, i), pngOf(t.striped(class, 16, 16)))
		}
	}
	return o
}

func (o *oddTree) put(name string, content []byte) { o.trap.write("photos/"+name, content) }

func (o *oddTree) job() oddJob {
	var want []string
	for i := range 20 {
		o.trap.write(fmt.Sprintf("question/%02d.png", i), pngOf(o.trap.striped(i%2, 16, 16)))
		want = append(want, stripes[i%2])
	}
	return oddJob{
		Args: append([]string{"mlp", "--data", o.dir, "--image-size", "16", "--batch", "4", "--epochs", "8", "--lr", "0.005"}, o.args...), Question: filepath.Join(o.trap.dir, "question"),
		Score: accuracy(want),
	}
}

// photos is an oddity of a folder of images.
func photos(change func(o *oddTree)) func(t *trap) oddJob {
	return func(t *trap) oddJob {
		o := t.pictures()
		change(o)
		return o.job()
	}
}

// added puts one more file into the folder.
func added(name string, content func(t *trap) []byte) func(t *trap) oddJob {
	return photos(func(o *oddTree) { o.put(name, content(o.trap)) })
}

func nothing(*trap) []byte { return nil }

// half is the first half of an image's file.
func half(t *trap) []byte {
	b := pngOf(t.striped(0, 16, 16))
	return b[:len(b)/2]
}

// again writes all images of a class of the training again, in another format.
func again(class int, ending string, encode func(image.Image) []byte) func(t *trap) oddJob {
	return photos(func(o *oddTree) {
		for i := range 24 {
			path := fmt.Sprintf("%s/train/%s/%02d.png", o.dir, stripes[class], i)
			if err := os.Remove(path); err != nil && o.trap.err == nil {
				o.trap.err = err
			}
			o.put(fmt.Sprintf("train/%s/%02d.%s", stripes[class], i, ending), encode(o.trap.striped(class, 16, 16)))
		}
	})
}

var oddImages = []oddity{
	{name: "images: unchanged", sound: true, make: photos(func(*oddTree) {})},
	{name: "images: a class as JPEG", sound: true, make: again(0, "jpg", jpegOf)},
	{name: "images: a class as .JPEG", sound: true, make: again(1, "JPEG", jpegOf)},
	{name: "images: a class as GIF", make: again(0, "gif", gifOf), blame: []string{"across", "gif"}, say: []string{"gif"}},
	{name: "images: a class that is named .png and is JPEG", sound: true, make: again(1, "png", jpegOf)},
	{name: "images: other sizes", sound: true, make: again(0, "png", func(image.Image) []byte { return pngOf((&trap{rng: dice(1, "odd", 1)}).striped(0, 32, 32)) })},
	{name: "images: half of one", make: added("train/across/x.png", half), blame: []string{"x.png"}, say: []string{"x.png"}},
	{name: "images: half of one, in evaluation", make: added("val/down/x.png", half), blame: []string{"x.png"}, say: []string{"x.png"}},
	{name: "images: half of one, left out", make: photos(func(o *oddTree) {
		o.put("train/across/x.png", half(o.trap))
		o.args = []string{"--set", "data.max-bad-records=1"}
	}), blame: []string{"x.png"}, say: []string{"x.png"}},
	{name: "images: an empty file", make: added("train/across/x.png", nothing), blame: []string{"x.png"}, say: []string{"x.png"}},
	{name: "images: a web page as .jpg", make: added("train/down/x.jpg", func(*trap) []byte { return []byte("<html>404</html>") }), blame: []string{"x.jpg"}, say: []string{"x.jpg"}},
	{name: "images: a text beside", sound: true, make: added("train/across/notes.txt", func(*trap) []byte { return []byte("x") })},
	{name: "images: Jupyter's folder", sound: true, make: added("train/.ipynb_checkpoints/x.png", func(t *trap) []byte { return pngOf(t.striped(0, 16, 16)) })},
	{name: "images: a hidden file", sound: true, make: added("train/across/._x.png", half)},
	{name: "images: macOS's folder", sound: true, make: added("__MACOSX/train/across/._x.png", half)},
	{name: "images: an empty class", make: photos(func(o *oddTree) {
		o.trap.err = os.MkdirAll(o.dir+"/train/diagonal", 0o755)
	}), blame: []string{"diagonal"}, say: []string{"diagonal"}},
	{name: "images: a class of broken files alone", make: added("train/diagonal/x.png", half), blame: []string{"diagonal", "x.png"}, say: []string{"diagonal"}},
	{name: "images: a class in evaluation alone", make: added("val/diagonal/x.png", func(t *trap) []byte { return pngOf(t.striped(0, 16, 16)) }), blame: []string{"diagonal"}, say: []string{"diagonal"}},
	{name: "images: a class in training alone", make: added("train/diagonal/x.png", func(t *trap) []byte { return pngOf(t.striped(0, 16, 16)) }), blame: []string{"diagonal"}, say: []string{"diagonal"}},
	{name: "images: a class whose name differs in case in evaluation", make: photos(func(o *oddTree) {
		o.trap.err = os.Rename(o.dir+"/val/down", o.dir+"/val/Down")
	}), blame: []string{"Down"}, say: []string{"Down"}},
	{name: "images: no evaluation", make: photos(func(o *oddTree) { o.trap.err = os.RemoveAll(o.dir + "/val") }), blame: []string{"val"}, say: []string{"held out"}},
	{name: "images: no training", make: photos(func(o *oddTree) { o.trap.err = os.RemoveAll(o.dir + "/train") }), blame: []string{"train"}},
	{name: "images: one class alone", make: photos(func(o *oddTree) {
		o.trap.err = os.RemoveAll(o.dir + "/train/down")
		_ = os.RemoveAll(o.dir + "/val/down")
	}), blame: []string{"class", "across"}, say: []string{"are of class"}},
	{name: "images: beside the classes", make: added("train/x.png", func(t *trap) []byte { return pngOf(t.striped(0, 16, 16)) }), blame: []string{"x.png"}, say: []string{"x.png", "1 file", "1 image"}},
	{name: "images: a name of Latin-1", make: added("train/h\xf6he/x.png", func(t *trap) []byte { return pngOf(t.striped(0, 16, 16)) }), blame: []string{"UTF-8"}},
	{name: "images: a link into nowhere", make: photos(func(o *oddTree) {
		o.trap.err = os.Symlink("nowhere.png", o.dir+"/train/across/x.png")
	}), blame: []string{"x.png"}, say: []string{"x.png"}},
	{name: "images: a link to another image", sound: true, make: photos(func(o *oddTree) {
		o.trap.err = os.Symlink("00.png", o.dir+"/train/across/x.png")
	})},
	{name: "images: one pixel", make: added("train/across/x.png", func(t *trap) []byte { return pngOf(t.striped(0, 1, 1)) }), sound: true},
	{name: "images: 65,535 x 65,535", make: added("train/across/x.png", (*trap).huge), blame: []string{"x.png"}, say: []string{"x.png"}},
	{name: "images: deeper folders", make: added("train/across/2026/11/x.png", func(t *trap) []byte { return pngOf(t.striped(0, 16, 16)) }), sound: true},
	{name: "images: a class with a space", sound: true, make: photos(func(o *oddTree) {
		for _, part := range []string{"train", "val"} {
			o.put(part+"/two words/x.png", pngOf(o.trap.striped(0, 16, 16)))
		}
	})},
	{name: "images: nearly all of one class", make: photos(func(o *oddTree) {
		for i := 2; i < 24; i++ {
			_ = os.Remove(fmt.Sprintf("%s/train/down/%02d.png", o.dir, i))
		}
	}), say: []string{"down"}, blame: []string{"down"}},
	{name: "images: no such folder", make: photos(func(o *oddTree) { o.dir = strings.Replace(o.dir, "photos", "fotos", 1) }), blame: []string{"fotos"}},
}
