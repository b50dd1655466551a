// Package oip reads and writes the JSON of the Open Inference Protocol, version 2, over HTTP, as in
// KServe and Triton: https://github.com/kserve/open-inference-protocol.
package oip

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/internal/serving/jsonscan"
	"github.com/ringo-ml/ringo/internal/serving/sample"
)

// Types of elements.
const (
	Bytes = "BYTES" // a text
	FP32  = "FP32"
	FP64  = "FP64"
	UInt8 = "UINT8"
)

// numeric returns the types of numbers.
func numeric() []string {
	return []string{FP32, FP64, "FP16", UInt8, "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"}
}

// Server is the answer to GET /v2.
type Server struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// Tensor describes an input or output in Model. Dimension -1 is the number of rows.
type Tensor struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
}

// Model is the answer to GET /v2/models/NAME.
type Model struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions"`
	Platform string   `json:"platform"`
	Inputs   []Tensor `json:"inputs"`
	Outputs  []Tensor `json:"outputs"`
}

// Input describes a field as a tensor.
func Input(f sample.Field) Tensor {
	t := Tensor{Name: f.Name, Datatype: Bytes, Shape: append([]int{-1}, f.Shape...)}
	switch f.Kind {
	case sample.Number:
		t.Datatype = FP64
	case sample.Pixels:
		t.Datatype = UInt8
	case sample.Values:
		t.Datatype = FP32
	}
	return t
}

// accepts reports whether a field accepts a type.
func accepts(kind sample.Kind, datatype string) bool {
	switch kind {
	case sample.Category, sample.Date:
		return datatype == Bytes || datatype == "BOOL" || slices.Contains(numeric(), datatype)
	case sample.Bag:
		return datatype == Bytes
	}
	return slices.Contains(numeric(), datatype)
}

// Request is the body of an inference.
type Request struct {
	ID      string
	HasID   bool
	Inputs  []sample.Tensor
	Outputs []string // names; nil: all
}

// Parse reads a request for fields. Errors are texts for the client.
func Parse(body []byte, fields []sample.Field) (r Request, err error) {
	if err := jsonscan.Check(body); err != nil {
		return r, err
	}
	if body = jsonscan.Trim(body); jsonscan.Kind(body) != "object" {
		return r, fmt.Errorf("the body is of type %s: want an object with inputs", jsonscan.Kind(body))
	}
	err = jsonscan.Object(body, func(name string, value []byte) error {
		switch name {
		case "id":
			if jsonscan.Kind(value) != "string" {
				return fmt.Errorf("id: want a string, got %s", jsonscan.Show(value))
			}
			r.ID, r.HasID = jsonscan.String(value), true
		case "inputs":
			return each(name, value, func(v []byte) error {
				t, err := input(v, fields)
				r.Inputs = append(r.Inputs, t)
				return err
			})
		case "outputs":
			return each(name, value, func(v []byte) error {
				t, err := tensor(v)
				r.Outputs = append(r.Outputs, t.name)
				return err
			})
		case "parameters":
			return noParameters(value)
		default:
			return fmt.Errorf("%q: want id, inputs, outputs or parameters", name)
		}
		return nil
	})
	if err == nil && len(r.Inputs) == 0 {
		err = fmt.Errorf("no inputs: want a tensor for each input of the model")
	}
	return r, err
}

// each visits the elements of an array.
func each(name string, value []byte, visit func(value []byte) error) error {
	if jsonscan.Kind(value) != "array" {
		return fmt.Errorf("%s: want an array, got %s", name, jsonscan.Show(value))
	}
	return jsonscan.Array(value, visit)
}

// noParameters rejects parameters: none is defined, so that each would be silently ignored.
func noParameters(value []byte) error {
	if jsonscan.Kind(value) != "object" {
		return fmt.Errorf("parameters: want an object, got %s", jsonscan.Show(value))
	}
	return jsonscan.Object(value, func(name string, _ []byte) error { return fmt.Errorf("parameter %q is unknown: leave it out", name) })
}

// parts are the members of a tensor's object.
type parts struct {
	name, datatype string
	shape          []int
	data           []byte
}

func tensor(value []byte) (t parts, err error) {
	if jsonscan.Kind(value) != "object" {
		return t, fmt.Errorf("a tensor is %s: want an object", jsonscan.Show(value))
	}
	err = jsonscan.Object(value, func(name string, value []byte) error {
		switch kind := jsonscan.Kind(value); {
		case name == "name" && kind == "string":
			t.name = jsonscan.String(value)
		case name == "datatype" && kind == "string":
			t.datatype = jsonscan.String(value)
		case name == "data" && kind == "array":
			t.data = value
		case name == "shape" && kind == "array":
			return jsonscan.Array(value, func(value []byte) error {
				d, err := strconv.ParseUint(string(value), 10, 31)
				if err != nil || len(t.shape) == 8 {
					return fmt.Errorf("shape: want at most 8 dimensions below 2^31, got %s", jsonscan.Show(value))
				}
				t.shape = append(t.shape, int(d))
				return nil
			})
		case name == "parameters":
			return noParameters(value)
		default:
			return fmt.Errorf("%q of a tensor: %s: want name, shape, datatype and data", name, jsonscan.Show(value))
		}
		return nil
	})
	if err == nil && t.name == "" {
		err = fmt.Errorf("a tensor has no name")
	}
	if err != nil && t.name != "" {
		err = fmt.Errorf("tensor %q: %w", t.name, err)
	}
	return t, err
}

// input returns an input, with the checks that need the type.
func input(value []byte, fields []sample.Field) (sample.Tensor, error) {
	t, err := tensor(value)
	switch {
	case err != nil:
		return sample.Tensor{}, err
	case t.shape == nil || t.datatype == "" || t.data == nil:
		return sample.Tensor{}, fmt.Errorf("input %q: want shape, datatype and data", t.name)
	}
	for _, f := range fields {
		if f.Name == t.name && !accepts(f.Kind, t.datatype) {
			return sample.Tensor{}, fmt.Errorf("input %q: datatype %q: want %s for a %s", t.name, t.datatype, Input(f).Datatype, f.Kind)
		}
	}
	return sample.Tensor{Name: t.name, Shape: t.shape, Data: t.data}, nil
}

// Output is an output of a response. Data holds the JSON of the elements.
type Output struct {
	Tensor
	Data []json.RawMessage `json:"data"`
}

// Response is the answer to an inference.
type Response struct {
	ModelName    string   `json:"model_name"`
	ModelVersion string   `json:"model_version"`
	ID           *string  `json:"id,omitempty"`
	Outputs      []Output `json:"outputs"`
}

// Choose returns the requested outputs in the order of the request.
func (r *Request) Choose(all []Output) ([]Output, error) {
	if r.Outputs == nil {
		return all, nil
	}
	var out []Output
	for _, name := range r.Outputs {
		i := slices.IndexFunc(all, func(o Output) bool { return o.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("output %q: no output of the model", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}
