package reading

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// passes are the passes of `meters read` over files.
type passes struct {
	files   []string
	packed  int // of them are compressed
	threads int
	parser  *clicks.CriteoParser
	stream  *data.ClickStream
	sample  [][]byte // of the text, in pieces of whole lines
	block   clicks.Block

	fileBytes, packedBytes, sampleBytes int64
	textBytes, unpackedBytes            int64 // by unpack
	rows                                int64 // by pipeline
	bad                                 int
}

// passBytes is how much is read or parsed at a time, as by a data.ClickStream.
const passBytes = 1 << 20

// mostSample is how much text is parsed in memory.
const mostSample = 64 << 20

func newPasses(ctx context.Context, files []string, parser *clicks.CriteoParser, stream *data.ClickStream, threads int) (*passes, error) {
	p := &passes{files: files, threads: threads, parser: parser, stream: stream}
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if p.fileBytes += info.Size(); datafile.Packed(path) {
			p.packed++
			p.packedBytes += info.Size()
		}
	}
	for _, path := range files {
		if err := p.learn(ctx, path); err != nil {
			return nil, err
		}
	}
	if p.sampleBytes == 0 {
		return nil, fmt.Errorf("%s holds no lines", files[0])
	}
	p.textBytes = p.fileBytes - p.packedBytes
	return p, nil
}

// learn adds a file's beginning to the sample.
func (p *passes) learn(ctx context.Context, path string) error {
	if p.sampleBytes >= mostSample || context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	r, err := datafile.OpenText(path)
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, mostSample-p.sampleBytes))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for len(text) > 0 {
		end := bytes.LastIndexByte(text[:min(len(text), passBytes)], '\n') + 1
		if end == 0 { // what is left of a line, or no text
			return nil
		}
		p.sample = append(p.sample, text[:end])
		p.sampleBytes += int64(end)
		text = text[end:]
	}
	return nil
}

// disk reads all files by as many goroutines as the pipeline has, and does
// nothing with them.
func (p *passes) disk(ctx context.Context) error {
	for _, path := range p.files {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := p.readFile(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func (p *passes) readFile(ctx context.Context, path string) error {
	f, err := pathname.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, p.threads)
	for i := range p.threads {
		all.Go(func() {
			buf := make([]byte, passBytes)
			for errs[i] == nil && ctx.Err() == nil {
				_, errs[i] = f.ReadAt(buf, (next.Add(1)-1)*passBytes)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && err != io.EOF {
			return err
		}
	}
	return context.Cause(ctx)
}

// unpack decompresses the compressed files one after the other.
func (p *passes) unpack(ctx context.Context) error {
	buf := make([]byte, passBytes)
	sum := int64(0)
	for _, path := range p.files {
		if !datafile.Packed(path) {
			continue
		}
		r, err := datafile.OpenText(path)
		if err != nil {
			return err
		}
		for err == nil {
			var n int
			n, err = r.Read(buf)
			sum += int64(n)
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
		}
		r.Close()
		if err != io.EOF {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	p.unpackedBytes = sum
	p.textBytes = p.fileBytes - p.packedBytes + sum
	return nil
}

// parse parses the sample on this goroutine.
func (p *passes) parse(ctx context.Context) error {
	for _, text := range p.sample {
		p.parser.Parse(text, &p.block) // bad lines are the pipeline's to tell
	}
	return context.Cause(ctx)
}

// pipeline reads an epoch.
func (p *passes) pipeline(ctx context.Context) error {
	p.rows = 0
	p.stream.Start(0)
	for {
		b, ok, err := p.stream.Next()
		if err != nil {
			return err
		}
		if !ok {
			p.bad = 0
			for _, l := range p.stream.LeftOut() {
				p.bad += l.Count
			}
			return nil
		}
		if p.rows += int64(b.N); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
