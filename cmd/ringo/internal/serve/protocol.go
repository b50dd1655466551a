package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/internal/httpguard"
	"github.com/ringo-ml/ringo/internal/serving/jsonscan"
	"github.com/ringo-ml/ringo/internal/serving/oip"
	"github.com/ringo-ml/ringo/predict"
)

// The handlers of the Open Inference Protocol, version 2.

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	m := s.current.Load()
	h := struct {
		Live       bool    `json:"live"`
		Ready      bool    `json:"ready"`
		Model      string  `json:"model"`
		Version    string  `json:"version"`
		Checkpoint string  `json:"checkpoint"`
		AgeS       float64 `json:"checkpoint_age_s"`
		Failed     string  `json:"swap_error,omitempty"`
	}{true, true, s.cfg.Name, m.version, m.file, time.Since(m.id.time).Seconds(), s.failed()}
	status := http.StatusOK
	select {
	case <-m.ended:
		h.Ready = false
	default:
		h.Ready = !s.ending.Load()
	}
	if !h.Ready {
		status = http.StatusServiceUnavailable
	}
	text, err := json.Marshal(h)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	write(w, status, text)
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	answer(w, oip.Server{Name: "ringo", Version: s.cfg.Version, Extensions: []string{}})
}

// named rejects requests for another model or version.
func (s *Server) named(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if name := r.PathValue("name"); name != s.cfg.Name {
			fail(w, http.StatusNotFound, fmt.Errorf("model %s: this server has %q", httpguard.Quote(name), s.cfg.Name))
			return
		}
		if err := versioned(r, s.current.Load()); err != nil {
			fail(w, http.StatusNotFound, err)
			return
		}
		next(w, r)
	}
}

func versioned(r *http.Request, m *served) error {
	if version := r.PathValue("version"); version != "" && version != m.version {
		return fmt.Errorf("version %s: the model's version is %s, the step of its checkpoint", httpguard.Quote(version), m.version)
	}
	return nil
}

func (s *Server) modelReady(w http.ResponseWriter, _ *http.Request) {
	answer(w, struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
	}{s.cfg.Name, !s.ending.Load()})
}

func (s *Server) modelMetadata(w http.ResponseWriter, _ *http.Request) {
	m := s.current.Load()
	about := oip.Model{Name: s.cfg.Name, Versions: []string{m.version}, Platform: "ringo"}
	for _, f := range m.codec.Fields() {
		about.Inputs = append(about.Inputs, oip.Input(f))
	}
	for _, o := range m.outputs(nil, -1) {
		about.Outputs = append(about.Outputs, o.Tensor)
	}
	answer(w, about)
}

// infer answers tensors.
func (s *Server) infer(m *served, r *http.Request, body []byte) ([]byte, error) {
	if err := versioned(r, m); err != nil { // replaced since named
		return nil, statusError{http.StatusNotFound, err}
	}
	in, err := oip.Parse(body, m.codec.Fields())
	if err == nil {
		_, err = in.Choose(m.outputs(nil, -1))
	}
	if err != nil {
		return nil, statusError{http.StatusBadRequest, err}
	}
	rows, err := m.codec.Tensors(in.Inputs, s.cfg.Rows)
	outputs, err := s.compute(r.Context(), m, rows, err)
	if err != nil {
		return nil, err
	}
	lines, err := m.lines(rows, outputs, 0)
	if err != nil {
		return nil, err
	}
	all := m.outputs(lines, rows.N)
	if classes := len(m.classes()); classes > 0 {
		o := &all[len(all)-1]
		for i := range rows.N {
			for _, p := range predict.Softmax(nil, outputs[i*classes:][:classes], 1) {
				o.Data = append(o.Data, strconv.AppendFloat(nil, p, 'g', -1, 32))
			}
		}
	}
	out := oip.Response{ModelName: s.cfg.Name, ModelVersion: m.version}
	if in.HasID {
		out.ID = &in.ID
	}
	if out.Outputs, err = in.Choose(all); err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// outputs returns the output tensors of n rows (-1: any number), with values from lines, the JSON
// predictions. The probabilities of all classes come last, without values.
func (m *served) outputs(lines []byte, n int) (all []oip.Output) {
	of := func(name, datatype string) {
		o := oip.Output{Tensor: oip.Tensor{Name: name, Datatype: datatype, Shape: []int{n}}}
		for line := range bytes.Lines(lines) {
			_ = jsonscan.Object(bytes.TrimSuffix(line, []byte("\n")), func(field string, value []byte) error {
				if field == name {
					o.Data = append(o.Data, value)
				}
				return nil
			})
		}
		all = append(all, o)
	}
	classes := m.classes()
	switch {
	case classes != nil:
		of("prediction", oip.Bytes)
		of("probability", oip.FP32)
		all = append(all, oip.Output{Tensor: oip.Tensor{Name: "probabilities", Datatype: oip.FP32, Shape: []int{n, len(classes)}}})
	case m.predictor.Spec().Targets > 0:
		of("prediction", oip.FP32)
	default:
		of("probability", oip.FP32)
	}
	return all
}
