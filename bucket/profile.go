package bucket

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// ProfileFormat and ProfileVersion stand at the head of a profile's file. A
// reader refuses any other version: costs that are read in another sense than
// they were written are worse than none.
const (
	ProfileFormat  = "ringo-profile"
	ProfileVersion = 1
)

// Limits of what a profile may hold, so that reading one takes bounded memory.
const (
	maxProfileBytes  = 64 << 20
	maxProfileLayers = 1 << 16
	maxProfileCosts  = 1 << 10
	maxProfileValues = 1 << 40 // of all layers
)

// Profile is what planning needs to know of a job, measured or described: times
// of the computation, costs of codecs and of links. Saved, it is one JSON object
// of the fields below, beginning with "format" and "version"; times are in
// seconds. It may also name the plan that was made from it.
type Profile struct {
	Model string `json:"model"`
	Ranks int    `json:"ranks"` // it was measured on, or described for
	Batch int    `json:"batch"` // samples per rank
	// Forward is the time to the start of backward, Update what follows when
	// all gradients are agreed.
	Forward float64        `json:"forward_s"`
	Update  float64        `json:"update_s"`
	Layers  []LayerProfile `json:"layers"` // in the order in which backward finishes them
	Codecs  []CodecProfile `json:"codecs,omitempty"`
	Links   []LinkProfile  `json:"links,omitempty"`
	Plan    *SavedPlan     `json:"plan,omitempty"`
}

// LayerProfile is a layer's size in the gradient arena, padding included, and
// the time of backward from the previous gradient to this one.
type LayerProfile struct {
	Name     string  `json:"name"`
	Values   int     `json:"values"`
	Backward float64 `json:"backward_s"`
}

// CodecProfile is the cost of a codec on the compute path: of an exact step and,
// where it has such steps, of one that reuses what an exact one found.
type CodecProfile struct {
	Name  string `json:"name"`
	Exact Curve  `json:"exact"`
	Reuse Curve  `json:"reuse"`
}

// Payloads of a LinkProfile.
const (
	DensePayload  = "dense"  // values alone
	SparsePayload = "sparse" // entries with their indices
)

// LinkProfile is the cost of an exchange among Ranks ranks on Hosts hosts:
// Fixed + PerByte x the bytes of what one rank contributes.
type LinkProfile struct {
	Algorithm string  `json:"algorithm"`
	Payload   string  `json:"payload"` // DensePayload or SparsePayload
	Ranks     int     `json:"ranks"`
	Hosts     int     `json:"hosts"`
	Fixed     float64 `json:"fixed_s"`
	PerByte   float64 `json:"per_byte_s"`
}

// SavedPlan is a plan by the index of each group's last layer.
type SavedPlan struct {
	Name   string `json:"name"` // of its planner, or the user's own
	Last   []int  `json:"last_layers"`
	SHA256 string `json:"plan_sha256"` // Plan.SHA256
}

// SavePlan makes p, a plan of the profile's layers, part of the profile.
func (f *Profile) SavePlan(name string, p Plan) error {
	if err := p.Validate(f.layers()); err != nil {
		return err
	}
	s := &SavedPlan{Name: name, SHA256: p.SHA256()}
	for _, b := range p {
		s.Last = append(s.Last, b.Last)
	}
	f.Plan = s
	return nil
}

// SavedPlan is the plan that the profile, which must be valid, names, or nil.
func (f Profile) SavedPlan() Plan {
	if f.Plan == nil {
		return nil
	}
	p, _ := f.Plan.plan(f.layers()) // valid: so is the profile
	return p
}

func (s SavedPlan) plan(layers []Layer) (Plan, error) {
	var p Plan
	first := 0
	for i, last := range s.Last {
		if last < first || last >= len(layers) {
			return nil, fmt.Errorf("group %d ends at layer %d, want %d to %d", i, last, first, len(layers)-1)
		}
		p = append(p, span(layers, first, last))
		first = last + 1
	}
	return p, p.Validate(layers)
}

// layers lays the profile's layers out one after the other.
func (f Profile) layers() []Layer {
	out := make([]Layer, len(f.Layers))
	at := 0
	for i, l := range f.Layers {
		out[i] = Layer{Name: l.Name, Offset: at, Len: l.Values}
		at += l.Values
	}
	return out
}

// Step is the profile's computation without costs: set Costs before planning.
func (f Profile) Step() Step {
	s := Step{Layers: f.layers(), Forward: f.Forward, Update: f.Update}
	for _, l := range f.Layers {
		s.Backward = append(s.Backward, l.Backward)
	}
	return s
}

// Codec is the codec of that name, false when the profile has none.
func (f Profile) Codec(name string) (CodecProfile, bool) {
	for _, c := range f.Codecs {
		if c.Name == name {
			return c, true
		}
	}
	return CodecProfile{}, false
}

// Sends are the profile's ways to carry such payloads among that many ranks and
// hosts, in the order of the profile.
func (f Profile) Sends(p Payload, ranks, hosts int) []Send {
	kind := DensePayload
	if p.Density > 0 {
		kind = SparsePayload
	}
	var out []Send
	for _, l := range f.Links {
		if l.Payload == kind && l.Ranks == ranks && l.Hosts == hosts {
			out = append(out, Send{Name: l.Algorithm, Payload: p, Fixed: l.Fixed, PerByte: l.PerByte})
		}
	}
	return out
}

// Validate reports every fault of f at once.
func (f Profile) Validate() error {
	var bad faults
	if f.Ranks < 1 {
		bad.add("%d ranks: want at least 1", f.Ranks)
	}
	if f.Batch < 0 {
		bad.add("batch %d: want 0 (not known) or more", f.Batch)
	}
	bad.seconds("forward", f.Forward)
	bad.seconds("update", f.Update)
	if f.checkLayers(&bad); len(bad) == 0 && f.Plan != nil {
		if p, err := f.Plan.plan(f.layers()); err != nil {
			bad.add("plan %q: %w", f.Plan.Name, err)
		} else if sum := p.SHA256(); sum != f.Plan.SHA256 {
			bad.add("plan %q: its hash is %s, the file says %q", f.Plan.Name, sum, f.Plan.SHA256)
		}
	}
	f.checkCosts(&bad)
	return bad.err("bucket: bad profile")
}

func (f Profile) checkLayers(bad *faults) {
	if n := len(f.Layers); n < 1 || n > maxProfileLayers {
		bad.add("%d layers: want 1 to %d", n, maxProfileLayers)
		return
	}
	seen, all := map[string]bool{}, 0
	for i, l := range f.Layers {
		what := fmt.Sprintf("layer %d %q", i, l.Name)
		if l.Name == "" || seen[l.Name] {
			bad.add("%s: want a name that no other layer has", what)
		}
		seen[l.Name] = true
		if l.Values < 1 || l.Values > maxProfileValues {
			bad.add("%s: %d values: want 1 to %d", what, l.Values, maxProfileValues)
		} else if all += l.Values; all > maxProfileValues {
			bad.add("%s: more than %d values in all", what, maxProfileValues)
			all = math.MinInt32 // said once
		}
		bad.seconds(what+": backward", l.Backward)
	}
}

func (f Profile) checkCosts(bad *faults) {
	if c, l := len(f.Codecs), len(f.Links); c > maxProfileCosts || l > maxProfileCosts {
		bad.add("%d codecs and %d links: want at most %d of each", c, l, maxProfileCosts)
		return
	}
	for i, c := range f.Codecs {
		what := fmt.Sprintf("codec %d %q", i, c.Name)
		if c.Name == "" || slices.ContainsFunc(f.Codecs[:i], func(o CodecProfile) bool { return o.Name == c.Name }) {
			bad.add("%s: want a name that no other codec has", what)
		}
		bad.curve(what+": exact", c.Exact)
		bad.curve(what+": reuse", c.Reuse)
	}
	for i, l := range f.Links {
		what := fmt.Sprintf("link %d %q", i, l.Algorithm)
		if l.Algorithm == "" || slices.ContainsFunc(f.Links[:i], l.same) {
			bad.add("%s for %s payloads, %d ranks, %d hosts: want an algorithm, and each once", what, l.Payload, l.Ranks, l.Hosts)
		}
		if l.Payload != DensePayload && l.Payload != SparsePayload {
			bad.add("%s: payload %q: want %s or %s", what, l.Payload, DensePayload, SparsePayload)
		}
		if l.Ranks < 1 || l.Hosts < 1 || l.Hosts > l.Ranks {
			bad.add("%s: %d ranks on %d hosts: want at least one rank a host", what, l.Ranks, l.Hosts)
		}
		bad.seconds(what+": fixed", l.Fixed)
		bad.seconds(what+": per byte", l.PerByte)
	}
}

// same reports whether two links describe the same exchange.
func (l LinkProfile) same(o LinkProfile) bool {
	return l.Algorithm == o.Algorithm && l.Payload == o.Payload && l.Ranks == o.Ranks && l.Hosts == o.Hosts
}

// profileFile is a profile as it is saved.
type profileFile struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Profile
}

// EncodeProfile returns the profile's file, or every fault of it.
func EncodeProfile(f Profile) ([]byte, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(profileFile{ProfileFormat, ProfileVersion, f}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("bucket: encoding a profile: %w", err)
	}
	return append(out, '\n'), nil
}

// DecodeProfile is the inverse of EncodeProfile. Whatever the bytes, the profile
// it returns is valid, or there is an error that reports all its faults.
func DecodeProfile(data []byte) (Profile, error) {
	if len(data) > maxProfileBytes {
		return Profile{}, fmt.Errorf("bucket: a profile of %d bytes: want at most %d", len(data), maxProfileBytes)
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Profile{}, fmt.Errorf("bucket: not a profile: %w", err)
	}
	if head.Format != ProfileFormat || head.Version != ProfileVersion {
		return Profile{}, fmt.Errorf("bucket: format %q, version %d: want %q, version %d", head.Format, head.Version, ProfileFormat, ProfileVersion)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var f profileFile
	if err := d.Decode(&f); err != nil {
		return Profile{}, fmt.Errorf("bucket: bad profile: %w", err)
	}
	return f.Profile, f.Validate()
}

// SaveProfile writes the profile's file, whole or not at all.
func SaveProfile(path string, f Profile) (err error) {
	data, err := EncodeProfile(f)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("bucket: saving a profile: %w", err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("bucket: saving a profile: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// LoadProfile reads a profile's file.
func LoadProfile(path string) (Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return Profile{}, fmt.Errorf("bucket: loading a profile: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxProfileBytes+1))
	if err != nil {
		return Profile{}, fmt.Errorf("bucket: loading a profile: %w", err)
	}
	f, err := DecodeProfile(data)
	if err != nil {
		return Profile{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
