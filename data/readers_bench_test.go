package data

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
)

// The readers of arrays and shards, each beside reading the same bytes plainly. bench/README.md has figures.

const (
	benchSamples = 1 << 13
	benchRow     = 784 // values
)

// benchArrays is a .npz of samples of a type that has so many bytes a value.
func benchArrays(b *testing.B, method uint16, descr string, size int) string {
	b.Helper()
	values := make([]byte, benchSamples*benchRow*size)
	for i := range benchSamples * benchRow {
		if size == 4 {
			binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(float32(i%251)/251))
		} else {
			values[i] = byte(i * i % 251)
		}
	}
	path := filepath.Join(b.TempDir(), "x.npz")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	z := zip.NewWriter(f)
	for _, a := range []struct {
		name string
		file []byte
	}{{"x", npyFile(descr, fmt.Sprintf("(%d, %d)", benchSamples, benchRow), values)}, {"y", npyFile("|u1", fmt.Sprintf("(%d,)", benchSamples), make([]byte, benchSamples))}} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: a.name + ".npy", Method: method})
		if err == nil {
			_, err = w.Write(a.file)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if z.Close() != nil || f.Close() != nil {
		b.Fatal("cannot write")
	}
	return path
}

// fillAll takes the samples of a source in order, or each at a place of its own.
func fillAll(b *testing.B, s Source, scattered bool) {
	b.Helper()
	var batch Batch
	idx := make([]int32, 64)
	n := s.Len() / len(idx) * len(idx)
	for at := 0; at < n; at += len(idx) {
		for i := range idx {
			if idx[i] = int32(at + i); scattered {
				idx[i] = int32((at + i) * 7919 % n)
			}
		}
		if err := s.Fill(&batch, idx, Draw{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkArrays(b *testing.B) {
	for name, c := range map[string]struct {
		method uint16
		descr  string
		size   int
	}{"float32": {zip.Store, "<f4", 4}, "uint8": {zip.Store, "|u1", 1}, "deflated-float32": {zip.Deflate, "<f4", 4}} {
		path := benchArrays(b, c.method, c.descr, c.size)
		bytesRead := int64(benchSamples * benchRow * c.size)
		b.Run(name+"/plain", func(b *testing.B) {
			b.SetBytes(bytesRead)
			for b.Loop() {
				z, err := zip.OpenReader(path)
				if err != nil {
					b.Fatal(err)
				}
				r, err := z.File[0].Open()
				if err == nil {
					_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 1<<18))
				}
				if err != nil || z.Close() != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/open", func(b *testing.B) {
			b.SetBytes(bytesRead)
			for b.Loop() {
				set, err := Open("arrays", Config{Dir: path, Split: 0.01})
				if err != nil || set.Close() != nil {
					b.Fatal(err)
				}
			}
		})
		for _, scattered := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/fill-scattered-%v", name, scattered), func(b *testing.B) {
				set, err := Open("arrays", Config{Dir: path, Split: 0.01})
				if err != nil {
					b.Fatal(err)
				}
				defer set.Close()
				b.SetBytes(int64(set.Train.Len() * benchRow * c.size))
				for b.Loop() {
					fillAll(b, set.Train, scattered)
				}
			})
		}
	}
}

func BenchmarkShards(b *testing.B) {
	const n = 512
	jpg := datatest.EncodeJPEG(datatest.Colourful(160, 120, 1))
	var all bytes.Buffer
	w := tar.NewWriter(&all)
	for i := range n {
		for name, text := range map[string][]byte{"cls": fmt.Append(nil, i%10), "jpg": jpg} {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%06d.%s", i, name), Size: int64(len(text)), Mode: 0o666}); err != nil {
				b.Fatal(err)
			}
			if _, err := w.Write(text); err != nil {
				b.Fatal(err)
			}
		}
	}
	path := filepath.Join(b.TempDir(), "0.tar")
	if w.Close() != nil || os.WriteFile(path, all.Bytes(), 0o666) != nil {
		b.Fatal("cannot write")
	}
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(int64(all.Len()))
		for b.Loop() {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			for r := tar.NewReader(f); err == nil; {
				if _, err = r.Next(); err == nil {
					_, err = io.Copy(io.Discard, r)
				}
			}
			if err != io.EOF || f.Close() != nil {
				b.Fatal(err)
			}
		}
	})
	open := func() *Dataset {
		set, err := Open("shards", Config{Dir: path, EvalFile: path, ImageSize: 112, Threads: 1})
		if err != nil {
			b.Fatal(err)
		}
		return set
	}
	b.Run("open", func(b *testing.B) {
		b.SetBytes(int64(all.Len()))
		for b.Loop() {
			if err := open().Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	var pictures []images.Picture
	for range n {
		pictures = append(pictures, images.Picture{Path: "x", Encoded: jpg})
	}
	memory := newEncoded(pictures, make([]int32, n), 112, new(datafile.Skips))
	b.Run("decode-from-memory", func(b *testing.B) {
		b.SetBytes(int64(n * len(jpg)))
		for b.Loop() {
			fillAll(b, memory, true)
		}
	})
	b.Run("fill", func(b *testing.B) {
		set := open()
		defer set.Close()
		b.SetBytes(int64(n * len(jpg)))
		for b.Loop() {
			fillAll(b, set.Train, true)
		}
	})
}
