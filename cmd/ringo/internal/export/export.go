// Package export is `ringo export`: it writes what a run has trained for other programs.
package export

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/console"
	"github.com/ringo-ml/ringo/internal/folder"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/weights"
)

const (
	safetensors = "safetensors"
	npz         = "npz"
)

// Command is `ringo export`.
func Command() *cobra.Command {
	format, out := safetensors, ""
	cmd := &cobra.Command{
		Use:   "export CHECKPOINT --out FILE",
		Short: "Write the weights of a checkpoint for other programs",
		Long: "Write the weights of a checkpoint, a file or a run's folder, whose last one is taken,\n" +
			"with the names and layouts of PyTorch's state_dict: those of resnet50 are torchvision's.\n" +
			"safetensors and npz (NumPy's) hold the same tensors. A file appears whole or not at all.",
		Example: "  ringo export RUN --out model.safetensors\n  ringo export RUN/step-000000500.ringo --format npz --out model.npz",
		Args:    oneCheckpoint,
	}
	console.Choice(cmd, &format, "format", "safetensors or npz", safetensors, npz)
	cmd.Flags().StringVar(&out, "out", "", "`FILE` for the weights (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var faults console.Faults
		faults.Known("format", format, safetensors, npz)
		if out == "" {
			faults.Add("`ringo export` needs --out FILE")
		}
		if len(faults) > 0 {
			return faults.Usage()
		}
		tensors, about, err := load(args[0])
		if err != nil {
			return err
		}
		err = folder.WriteFile(out, func(w io.Writer) error {
			if format == npz {
				return weights.WriteNPZ(w, tensors)
			}
			return weights.Write(w, tensors, about)
		})
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s has %s of %s, after step %s\n", out, console.Counted(len(tensors), "tensor"), about["model"], about["step"])
		}
		return err
	}
	return cmd
}

func oneCheckpoint(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return console.Usagef("`%s` takes one checkpoint, a file or a run's folder, got %q", cmd.CommandPath(), args)
	}
	return nil
}

// load returns the weights of a checkpoint's file, or of a folder's last one.
func load(path string) ([]weights.Tensor, map[string]string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path, err = checkpoint.Latest(path); err != nil {
			return nil, nil, err
		}
	}
	f, err := checkpoint.Load(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	spec, err := models.Lookup(f.Header.Model)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	ps, nodes, err := build(spec, f.Arrays())
	if err == nil {
		err = f.Read(arrays(ps, f.Arrays())...)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	names := func(name string) string { return models.PyTorchName(spec.Name, name) }
	about := map[string]string{"format": "pt", "model": spec.Name, "step": fmt.Sprint(f.Header.Step)}
	return weights.Of(ps, nodes, names).Take(), about, nil
}

// build makes the model that has arrays of these lengths.
func build(spec model.Spec, has []checkpoint.Info) (*nn.Params, []nn.Node, error) {
	o, err := options(spec, has)
	if err != nil {
		return nil, nil, err
	}
	ps := nn.NewParams(1)
	m, sample := spec.Build(ps, o), spec.Sample(1)
	nodes, err := nn.Trace(func(t *nn.Tape) { m.Forward(t, sample) })
	return ps, nodes, err
}

// options finds out how many classes, tokens or rows a model has by the lengths of what was saved: those that differ from the
// model's own grow with them.
func options(spec model.Spec, has []checkpoint.Info) (o model.Options, err error) {
	ps := nn.NewOutline()
	spec.Build(ps, o)
	own := map[string]int{}
	for _, p := range ps.List() {
		own["param/"+p.Name] = len(p.Data)
	}
	for _, t := range ps.Tables() {
		own["table/"+t.Name] = t.Rows * t.Dim
		if !slices.ContainsFunc(has, func(i checkpoint.Info) bool { return i.Name == "table/"+t.Name }) {
			return o, fmt.Errorf("the rows of table %s lie on the run's servers: `ringo ps export` writes them", t.Name)
		}
	}
	for _, i := range has {
		n, ok := own[i.Name]
		if !ok || int64(n) == i.Len {
			continue
		}
		switch spec.Task {
		case model.Click:
			o.Rows = int(i.Len * int64(spec.Rows) / int64(n))
		case model.Language:
			o.Vocabulary = int(i.Len * int64(spec.Classes) / int64(n))
		default:
			o.Classes = int(i.Len * int64(spec.Classes) / int64(n))
		}
		break
	}
	return o, nil
}

// arrays are what a file has: the model's to be read, others to be passed by.
func arrays(ps *nn.Params, has []checkpoint.Info) (out []checkpoint.Array) {
	own := map[string]bool{}
	add := func(name string, data []float32) {
		own[name] = true
		out = append(out, checkpoint.Floats(name, data))
	}
	for _, p := range ps.List() {
		add("param/"+p.Name, p.Data)
	}
	for _, t := range ps.Tables() {
		add("table/"+t.Name, t.Data)
	}
	for _, b := range ps.BufferList() {
		add("buffer/"+b.Name, b.Data)
	}
	for _, i := range has {
		switch {
		case own[i.Name]:
		case i.Kind == "float32":
			out = append(out, checkpoint.Passing(i.Name, int(i.Len), func([]float32) error { return nil }))
		case i.Kind == "uint64":
			out = append(out, checkpoint.Words(i.Name, make([]uint64, i.Len)))
		default:
			out = append(out, checkpoint.Bytes(i.Name, make([]byte, i.Len)))
		}
	}
	return out
}
