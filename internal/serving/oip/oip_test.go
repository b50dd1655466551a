package oip

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/serving/sample"
)

// fields returns the inputs of the tests.
func fields() []sample.Field {
	return []sample.Field{{Name: "age", Kind: sample.Number}, {Name: "city", Kind: sample.Category}, {Name: "tags", Kind: sample.Bag}, {Name: "pixels", Kind: sample.Pixels, Shape: []int{2, 2, 1}}}
}

// TestParseReadsRequests: a request has its tensors, outputs and identifier, in any order of
// members.
func TestParseReadsRequests(t *testing.T) {
	r, err := Parse([]byte(`{"outputs":[{"name":"b"},{"name":"a","parameters":{}}],"inputs":[{"datatype":"INT64","data":[[1],[2]],"name":"age","shape":[2,1]},
		{"name":"city","shape":[2],"datatype":"BYTES","parameters":{},"data":["x","y"]}],"id":"","parameters":{}}`), fields())
	want := []sample.Tensor{{Name: "age", Shape: []int{2, 1}, Data: []byte(`[[1],[2]]`)}, {Name: "city", Shape: []int{2}, Data: []byte(`["x","y"]`)}}
	if err != nil || !r.HasID || r.ID != "" || !reflect.DeepEqual(r.Inputs, want) || !slices.Equal(r.Outputs, []string{"b", "a"}) {
		t.Errorf("%+v, %v", r, err)
	}
	a, b := Output{Tensor: Tensor{Name: "a"}}, Output{Tensor: Tensor{Name: "b"}}
	if got, err := r.Choose([]Output{a, b}); err != nil || !reflect.DeepEqual(got, []Output{b, a}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := r.Choose([]Output{a}); err == nil || !strings.Contains(err.Error(), `output "b"`) {
		t.Error(err)
	}
	if got := Input(fields()[3]); got.Datatype != UInt8 || !slices.Equal(got.Shape, []int{-1, 2, 2, 1}) {
		t.Errorf("%+v", got)
	}
}

// TestParseRejectsRequests: an error names the tensor and the member.
func TestParseRejectsRequests(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "of type array", `{`: "no JSON", `{}`: "no inputs", `{"id":3,"inputs":[]}`: "id: want a string", `{"inputs":{}}`: "inputs: want an array",
		`{"inputs":[3]}`: "a tensor is 3", `{"inputs":[{"shape":[1]}]}`: "a tensor has no name", `{"rows":[]}`: `"rows": want id`,
		`{"inputs":[{"name":"age","shape":[1],"datatype":"FP64"}]}`:                                        `input "age": want shape, datatype and data`,
		`{"inputs":[{"name":"age","shape":[1],"datatype":"BYTES","data":["1"]}]}`:                          `input "age": datatype "BYTES": want FP64 for a number`,
		`{"inputs":[{"name":"tags","shape":[1],"datatype":"INT8","data":[1]}]}`:                            `datatype "INT8": want BYTES for a bag`,
		`{"inputs":[{"name":"age","shape":[-1],"datatype":"FP64","data":[1]}]}`:                            `tensor "age": shape: want at most 8 dimensions below 2^31, got -1`,
		`{"inputs":[{"name":"age","shape":[1,1,1,1,1,1,1,1,1],"datatype":"FP64","data":[1]}]}`:             "at most 8 dimensions",
		`{"inputs":[{"name":"age","shape":[1.0],"datatype":"FP64","data":[1]}]}`:                           "got 1.0",
		`{"inputs":[{"name":"age","shape":[1],"datatype":"FP64","data":3}]}`:                               `"data" of a tensor: 3`,
		`{"inputs":[{"name":"age","name":"age","shape":[1],"datatype":"FP64","data":[3]}]}`:                "occurs twice",
		`{"inputs":[{"name":"age","shape":[1],"datatype":"FP64","data":[3],"parameters":{"binary":1}}]}`:   `parameter "binary" is unknown`,
		`{"inputs":[{"name":"age","shape":[1],"datatype":"FP64","data":[3]}],"parameters":{"priority":1}}`: `parameter "priority" is unknown`,
	} {
		if _, err := Parse([]byte(text), fields()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: any body is an error, or tensors with a name, a shape and data.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":"1","inputs":[{"name":"age","shape":[2],"datatype":"FP64","data":[1,null]}],"outputs":[{"name":"x"}]}`))
	f.Add([]byte(`{"inputs":[{"name":"pixels","shape":[1,2,2,1],"datatype":"UINT8","data":[[[1,2],[3,4]]]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(body, fields())
		if err != nil {
			return
		}
		for _, in := range r.Inputs {
			if in.Name == "" || in.Shape == nil || in.Data[0] != '[' || slices.Max(append(in.Shape, 0)) > 1<<31-1 {
				t.Fatalf("%q: %+v", body, in)
			}
		}
	})
}
