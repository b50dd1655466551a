package export

import (
	"encoding/binary"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/weights"
)

// net is a model of the zoo with numbers in all that it keeps, and a batch.
type net struct {
	spec    model.Spec
	ps      *nn.Params
	weights weights.Model
	model   model.Model
	batch   model.Batch
	input   []float32
}

func newNet(t *testing.T, name string) *net {
	t.Helper()
	spec, err := models.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	n := &net{spec: spec, ps: nn.NewParams(3), batch: spec.Sample(2)}
	n.model = spec.Build(n.ps, model.Options{Batch: 2})
	nodes, err := nn.Trace(func(t *nn.Tape) { n.model.Forward(t, spec.Sample(1)) })
	if err != nil {
		t.Fatal(err)
	}
	n.weights = weights.Of(n.ps, nodes, func(s string) string { return models.PyTorchName(spec.Name, s) })
	r := rand.New(rand.NewPCG(1, 2))
	keep := float32(0.15) // a variance that keeps values from fading out, layer by layer
	if name == "resnet50" {
		keep = 0.5 // its first weights are larger
	}
	for _, b := range n.ps.BufferList() {
		for i := range b.Data {
			b.Data[i] = b.Data[i]*keep + r.Float32()/10
		}
	}
	if v := n.batch.Values; v != nil {
		for i := range v.Data {
			v.Data[i] = float32(r.NormFloat64())
		}
		n.input = v.Data
	}
	for i := range n.batch.IDs {
		n.batch.IDs[i] = int32(r.IntN(spec.Classes))
		n.input = append(n.input, float32(n.batch.IDs[i]))
	}
	return n
}

// logits are what the network computes.
func (n *net) logits() []float32 {
	t := nn.NewTape(nn.TapeConfig{})
	defer t.Close()
	n.model.Reset()
	t.ResetEval()
	return append([]float32(nil), n.model.Forward(t, n.batch)[0].Data...)
}

func writeFloats(t *testing.T, path string, data []float32) {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, data)
	if err == nil {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// torch runs the peer and returns its logits.
func torch(t *testing.T, name, dir string, more ...string) []float32 {
	t.Helper()
	logits := filepath.Join(dir, "logits")
	cmd := exec.Command("/usr/bin/python3", append([]string{"peer.py", name, filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "input"), logits}, more...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(logits)
	if err != nil {
		t.Fatal(err)
	}
	y := make([]float32, len(b)/4)
	if _, err := binary.Decode(b, binary.LittleEndian, y); err != nil {
		t.Fatal(err)
	}
	return y
}

// near reports values that differ by more than a share of the largest.
func near(t *testing.T, got, want []float32, share float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d logits, want %d", len(got), len(want))
	}
	most, apart := 0.0, 0.0
	for i, v := range want {
		most, apart = max(most, math.Abs(float64(v))), max(apart, math.Abs(float64(v)-float64(got[i])))
	}
	t.Logf("%d logits up to %.3g, %.2g apart", len(got), most, apart)
	if !(apart <= share*max(1, most)) {
		t.Errorf("logits are %.3g apart, the largest is %.3g", apart, most)
	}
}

var withPyTorch = flag.Bool("pytorch", false, "compare with PyTorch and torchvision of /usr/bin/python3, for half a minute")

func needTorch(t *testing.T) {
	if !*withPyTorch {
		t.Skip("whether PyTorch loads what is exported was NOT tested: .ci/run does it, by go test ./cmd/ringo/internal/export -run PyTorch -pytorch")
	}
	if exec.Command("/usr/bin/python3", "-c", "import torch, torchvision").Run() != nil {
		t.Fatal("/usr/bin/python3 has no torch and torchvision: install python3-torch and python3-torchvision")
	}
}

// PyTorch loads what is exported, strictly, and computes the same logits.
func TestPyTorchLoads(t *testing.T) {
	needTorch(t)
	for _, name := range []string{"mnist-cnn", "cifar-resnet20", "cifar-vgg16", "resnet50", "lstm"} {
		t.Run(name, func(t *testing.T) {
			n, dir := newNet(t, name), t.TempDir()
			f, err := os.Create(filepath.Join(dir, "in.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			if err := weights.Write(f, n.weights.Take(), nil); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			writeFloats(t, filepath.Join(dir, "input"), n.input)
			near(t, n.logits(), torch(t, name, dir), 1e-5)
		})
	}
}

// Weights that PyTorch wrote, those of resnet50 with torchvision's names, are what both ranks of a run begin with, and compute here what
// they compute there.
func TestLoadsPyTorch(t *testing.T) {
	needTorch(t)
	for _, name := range []string{"mnist-cnn", "resnet50"} {
		t.Run(name, func(t *testing.T) {
			n, dir := newNet(t, name), t.TempDir()
			writeFloats(t, filepath.Join(dir, "input"), n.input)
			path := filepath.Join(dir, "out.safetensors")
			want := torch(t, name, dir, path)
			cfg := train.Config{Model: n.spec, Batch: 2, LR: 0.1, Optimizer: "sgd", Threads: 1, Start: train.Init{From: path, Freeze: []string{"conv1.*"}}}
			err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
				r, err := train.NewReplica(job, cfg, model.Options{})
				if err != nil {
					return err
				}
				defer r.Close()
				pass, err := r.Evaluate(n.batch)
				if err == nil {
					near(t, pass.Outputs[0].Data, want, 1e-4)
				}
				return errors.Join(err, collective.Barrier(job.Group())) // memory that ranks share is there until both are here
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
