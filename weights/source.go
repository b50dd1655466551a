package weights

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/nn"
)

// Source is a file with parameters, of any supported kind.
type Source struct {
	// Path is the file. For a run's folder, checkpoint.Choose selects the file, and Chosen is the
	// reason for the choice.
	Path, Chosen string
	// Tensors are the file's tensors. In a checkpoint they have the names and layouts of package
	// nn, and no Shape if the checkpoint does not have it.
	Tensors []Info
	// Read returns a tensor's values as float32.
	Read func(name string) ([]float32, error)
	// Saved is a checkpoint's header, nil for other files. With parameter servers the file holds
	// only frozen parameters.
	Saved *checkpoint.Header

	close func() error
}

// OpenSource opens a safetensors file, NumPy's .npz, a checkpoint, or a run's folder (see
// checkpoint.Choose), recognised by content, not by name. A .npz is read once for its checksums;
// compressed arrays are held in memory until Close. The caller closes the source.
//
// A value that is not finite is an error of Read with file, tensor and index.
func OpenSource(path string) (*Source, error) {
	s, err := openSource(path)
	if err != nil {
		return nil, err
	}
	read := s.Read
	s.Read = func(name string) ([]float32, error) {
		x, err := read(name)
		if i := slices.IndexFunc(x, func(v float32) bool { return v-v != 0 }); err == nil && i >= 0 {
			return nil, fmt.Errorf("weights: %s: tensor %s: value %d of %d is %s: want finite numbers: take a file from before training diverged", s.Path, name, i, len(x), quantity.Exact(x[i]))
		}
		return x, err
	}
	return s, nil
}

// openSource is OpenSource without the check of values.
func openSource(path string) (*Source, error) {
	kind, err := kindOf(path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "checkpoint":
		return openCheckpoint(path)
	case "zip":
		return openNPZ(path)
	}
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return &Source{Path: path, Tensors: f.Tensors(), Read: f.Read, close: f.Close}, nil
}

// kindOf determines the kind of a file from its first bytes.
func kindOf(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "checkpoint", nil
	} else if errors.Is(err, fs.ErrNotExist) {
		if _, _, err := checkpoint.Choose(path); !errors.Is(err, checkpoint.ErrNone) { // RUN/best or RUN/last
			return "checkpoint", nil
		}
	}
	f, err := pathname.Open(path)
	if err != nil {
		return "", fmt.Errorf("weights: %w", err)
	}
	defer f.Close()
	first := make([]byte, 8)
	n, err := io.ReadFull(f, first)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("weights: %s: %w", path, err)
	}
	switch text := string(first[:n]); {
	case text == checkpoint.Magic:
		return "checkpoint", nil
	case strings.HasPrefix(text, "PK\x03\x04"):
		return "zip", nil
	}
	return "safetensors", nil
}

// prefixes are the prefixes that package train gives to the names of weights in a checkpoint.
var prefixes = []string{"param/", "table/", "buffer/"}

func openCheckpoint(path string) (*Source, error) {
	path, why, err := checkpoint.Choose(path)
	if err != nil {
		return nil, err
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return nil, err
	}
	s := &Source{Path: path, Chosen: why, Saved: &f.Header, close: f.Close}
	arrays := map[string]checkpoint.Info{}
	for _, a := range f.Arrays() {
		for _, prefix := range prefixes {
			if name, is := strings.CutPrefix(a.Name, prefix); is && a.Kind == "float32" {
				arrays[name] = a
				s.Tensors = append(s.Tensors, Info{Name: name, Type: "F32", Shape: f.Header.Shapes[a.Name], hi: 4 * a.Len})
			}
		}
	}
	s.Read = func(name string) ([]float32, error) {
		a, ok := arrays[name]
		if !ok {
			return nil, fmt.Errorf("weights: %s has no tensor %q", path, name)
		}
		out := make([]float32, a.Len)
		return out, f.ReadSome(checkpoint.Floats(a.Name, out))
	}
	return s, nil
}

// Model is Of with the names and layouts of the source: those of package nn for a checkpoint, else
// those of names.
func (s *Source) Model(ps *nn.Params, nodes []nn.Node, names Names) Model {
	if s.Saved != nil {
		return Of(ps, nil, nil)
	}
	return Of(ps, nodes, names)
}

// Close closes the file.
func (s *Source) Close() error { return s.close() }
