// Package export is `ringo export`: it writes a trained model for other programs.
package export

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/onnx"
	"github.com/ringo-ml/ringo/weights"
)

const (
	safetensors = "safetensors"
	npz         = "npz"
	graph       = "onnx"
	bundle      = "bundle"
)

// Inputs of a graph.
const (
	raw     = "raw"     // columns of a table, or pixels
	encoded = "encoded" // the values that the model takes
)

// Command is `ringo export`.
func Command() *cobra.Command {
	format, out, inputs := safetensors, "", ""
	cmd := &cobra.Command{
		Use:   "export CHECKPOINT --out FILE",
		Short: "Export a checkpoint to ONNX, safetensors or NumPy",
		Long: "Write the model of a checkpoint in a format of other programs.\n" +
			"CHECKPOINT is a file, or the folder of a run: of a folder the best checkpoint (RUN/best)\n" +
			"is used if the run had training.monitor, else the last one (RUN/last).\n" +
			"safetensors and npz (NumPy) have the weights, with the names and layouts of PyTorch's\n" +
			"state_dict; resnet50 has the names of torchvision. onnx is the whole model as a graph of\n" +
			"opset 17 with a variable batch; weights of 1 GiB or more are in a second file, FILE.data.\n" +
			"Its inputs are the columns of a table (numbers, and words as strings) or the pixels of\n" +
			"images, and its outputs the fields of `ringo predict`. Graphs of other models, and all\n" +
			"graphs with --inputs encoded, have encoded inputs and return logits.\n" +
			"bundle is a folder for a click model: dense weights, a graph with sums of rows as inputs,\n" +
			"the rows, and bundle.json, which describes how a program computes the inputs of a line.\n" +
			"Files appear complete or not at all.",
		Example: "  ringo export RUN --out model.safetensors\n" +
			"  ringo export RUN/step-000000500.ringo --format npz --out model.npz\n" +
			"  ringo export RUN --format onnx --out model.onnx\n" +
			"  ringo export RUN --format onnx --inputs encoded --out model.onnx\n" +
			"  ringo export RUN --format bundle --out FOLDER",
		Args: oneCheckpoint,
	}
	cli.Choice(cmd, &format, "format", "safetensors, npz, onnx or bundle", safetensors, npz, graph, bundle)
	cmd.Flags().StringVar(&out, "out", "", "`FILE`, or a bundle's folder, to write (required)")
	cli.Choice(cmd, &inputs, "inputs", "inputs of an ONNX graph: raw or encoded; default: raw for tables and images", raw, encoded)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var faults cli.Faults
		faults.Known("format", format, safetensors, npz, graph, bundle)
		if cmd.Flags().Changed("inputs") {
			faults.Known("inputs", inputs, raw, encoded)
			faults.If(format != graph, "--inputs %s: only --format onnx has a choice of inputs", inputs)
		}
		faults.If(out == "", "`ringo export` needs --out FILE")
		if len(faults) > 0 {
			return faults.Usage()
		}
		m, err := load(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		what := ""
		switch format {
		case graph:
			what, err = m.writeGraph(out, inputs)
		case bundle:
			what, err = m.writeBundle(out)
		default:
			what, err = m.writeWeights(out, format)
		}
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s has %s of %s, after step %d\n", out, what, m.spec.Name, m.step)
		}
		return err
	}
	return cmd
}

func (m *trained) writeWeights(path, format string) (string, error) {
	if m.served && len(m.ps.Tables()) > 0 {
		rest := "`ringo ps export` writes them, and --format onnx the rest of the model"
		if len(m.spec.Slots) > 0 {
			rest = "--format bundle writes them and the rest of the model"
		}
		return "", fmt.Errorf("the rows of table %s are on the run's servers: %s", m.ps.Tables()[0].Name, rest)
	}
	tensors, about, err := m.tensors()
	if err != nil {
		return "", err
	}
	err = dirlock.WriteFile(path, func(w io.Writer) error {
		if format == npz {
			return weights.WriteNPZ(w, tensors)
		}
		return weights.Write(w, tensors, about)
	})
	return cli.Counted(len(tensors), "tensor"), err
}

func (m *trained) tensors() ([]weights.Tensor, map[string]string, error) {
	nodes, err := nn.Trace(func(t *nn.Tape) { m.model.Forward(t, m.spec.Sample(1)) })
	about := map[string]string{"format": "pt", "model": m.spec.Name, "step": fmt.Sprint(m.step)}
	return weights.Of(m.ps, nodes, m.names).Take(), about, err
}

// writeDense writes the weights except tables.
func (m *trained) writeDense(path string) error {
	tensors, about, err := m.tensors()
	if err != nil {
		return err
	}
	tensors = slices.DeleteFunc(tensors, func(w weights.Tensor) bool {
		return slices.ContainsFunc(m.ps.Tables(), func(t *nn.Table) bool { return m.names(t.Name) == w.Name })
	})
	return dirlock.WriteFile(path, func(w io.Writer) error { return weights.Write(w, tensors, about) })
}

// writeGraph writes the model as a graph, and returns a summary of inputs and outputs.
func (m *trained) writeGraph(path, inputs string) (string, error) {
	if len(m.spec.Slots) > 0 {
		return "", fmt.Errorf("%s has keys, of which a graph has no rows: --format bundle writes the graph, the rows and how a program uses both", m.spec.Name)
	}
	about, err := m.about()
	if err != nil {
		return "", err
	}
	cfg := onnx.Config{Names: m.names, About: about}
	switch {
	case inputs == raw && !onnx.HasRaw(m.data):
		return "", fmt.Errorf("--inputs raw: the data of %s are neither a table nor images: --inputs encoded, the default here, has what the model takes", m.spec.Name)
	case inputs != encoded && onnx.HasRaw(m.data):
		cfg.Raw = &m.data
		about["inputs"] = raw
	}
	g, err := onnx.New(m.spec, m.model, m.ps, cfg)
	if err != nil && cfg.Raw != nil {
		err = fmt.Errorf("%w (--inputs encoded)", err)
	}
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("the graph %v", g)
	if g.External() {
		what += ", with the weights in " + path + ".data,"
	}
	return what, g.WriteFile(path)
}

func oneCheckpoint(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("`%s` takes one checkpoint, a file or a run's folder, got %q", cmd.CommandPath(), args)
	}
	return nil
}
