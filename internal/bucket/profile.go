package bucket

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Bounds of a profile, and therefore of planning.
const (
	maxProfileLayers = 1 << 16
	maxProfileCosts  = 1 << 10
	maxProfileValues = 1 << 40 // sum over all layers
)

// Profile is a job's input for planning, measured or described: times of the computation, costs of
// codecs and of links. In JSON a Profile is the planner's part of a profile's file (package tune);
// times are in seconds. A Profile may also name the plan made from the profile.
type Profile struct {
	Model string `json:"model"`
	Ranks int    `json:"ranks"` // measured, or described
	Batch int    `json:"batch"` // samples per rank
	// Forward is the time to the start of backward, Update the time after the last gradient's
	// exchange, Rows the exchange of row-sparse tables after the dense gradients.
	Forward float64        `json:"forward_s"`
	Update  float64        `json:"update_s"`
	Rows    float64        `json:"rows_s,omitempty"`
	Layers  []LayerProfile `json:"layers"` // order of backward
	Codecs  []CodecProfile `json:"codecs,omitempty"`
	Links   []LinkProfile  `json:"links,omitempty"`
	Plan    *SavedPlan     `json:"plan,omitempty"`
}

// LayerProfile is a layer's size in the gradient arena, including padding, and the backward time
// since the previous gradient.
type LayerProfile struct {
	Name     string  `json:"name"`
	Values   int     `json:"values"`
	Backward float64 `json:"backward_s"`
}

// CodecProfile is a codec's cost on the compute path: of an exact step and, for some codecs, of a
// step with reused thresholds.
type CodecProfile struct {
	Name string `json:"name"`
	// Density is the share of values during the measurement; 0: irrelevant.
	Density float64 `json:"density,omitempty"`
	Exact   Curve   `json:"exact"`
	Reuse   Curve   `json:"reuse"`
	// Sent is the ratio of sent to requested entries in a reuse step, on the rank with the most
	// entries; 0: unknown, taken as 1.
	Sent float64 `json:"sent,omitempty"`
	// After is a bucket's cost after its exchange, such as a cast.
	After Curve `json:"after,omitzero"`
}

// Payloads of a LinkProfile.
const (
	DensePayload  = "dense"  // values without indices
	SparsePayload = "sparse" // entries with indices
)

// LinkProfile is the cost of an exchange among Ranks ranks on Hosts hosts, through Servers servers
// or, with 0, among the ranks: Fixed + PerByte x the bytes of one rank's contribution, between
// Above and UpTo bytes.
type LinkProfile struct {
	Algorithm string `json:"algorithm"`
	Payload   string `json:"payload"`        // DensePayload or SparsePayload
	Code      string `json:"code,omitempty"` // code of the values, such as "fp16"; empty: any
	// Density and Unit belong to a measured sparse payload: the share of values and the bytes of an
	// entry with index; 0: any share, and the caller's bytes.
	Density float64 `json:"density,omitempty"`
	Unit    float64 `json:"unit_bytes,omitempty"`
	Above   float64 `json:"above_bytes,omitempty"`
	UpTo    float64 `json:"up_to_bytes,omitempty"` // 0: without bound
	Ranks   int     `json:"ranks"`
	Hosts   int     `json:"hosts"`
	Servers int     `json:"servers,omitempty"`
	Fixed   float64 `json:"fixed_s"`
	PerByte float64 `json:"per_byte_s"`
	// Contention is the mutual slowdown of exchanges of this payload, by any algorithm, and the
	// computation.
	Contention Contention `json:"contention,omitzero"`
}

// SavedPlan is a plan by the index of each bucket's last layer.
type SavedPlan struct {
	Name string `json:"name"` // planner's or user's name
	// Strategy and Density are the plan's strategy and density, empty and 0 if unknown.
	Strategy string  `json:"strategy,omitempty"`
	Density  float64 `json:"density,omitempty"`
	Last     []int   `json:"last_layers"`
	SHA256   string  `json:"plan_sha256"` // Plan.SHA256
}

// SavePlan stores p, a plan of the profile's layers, in the profile.
func (f *Profile) SavePlan(name string, p Plan) error {
	if err := p.Validate(f.layers()); err != nil {
		return err
	}
	f.Plan = &SavedPlan{Name: name, Last: p.Ends(), SHA256: p.SHA256()}
	return nil
}

// SavedPlan is a valid profile's plan, or nil.
func (f Profile) SavedPlan() Plan {
	if f.Plan == nil {
		return nil
	}
	p, _ := Cut(f.layers(), f.Plan.Last) // valid: so is the profile
	return p
}

func (f Profile) layers() []Param {
	out := make([]Param, len(f.Layers))
	at := 0
	for i, l := range f.Layers {
		out[i] = Param{Name: l.Name, Offset: at, Len: l.Values}
		at += l.Values
	}
	return out
}

// Step is the profile's computation without costs: set Costs before planning.
func (f Profile) Step() Step {
	s := Step{Layers: f.layers(), Forward: f.Forward, Update: f.Update, Rows: f.Rows}
	for _, l := range f.Layers {
		s.Backward = append(s.Backward, l.Backward)
	}
	return s
}

// Codec is the named codec for the density, false if missing.
func (f Profile) Codec(name string, density float64) (CodecProfile, bool) {
	for _, c := range f.Codecs {
		if c.Name == name && (c.Density == 0 || c.Density == density) {
			return c, true
		}
	}
	return CodecProfile{}, false
}

// Kinds are the steps of s under a codec with one exact selection per every steps and reuse
// otherwise: an exact step, a reuse step, and the mean for planners. The costs of s are for
// requested payloads; Sent multiplies those of reuse and mean, as most steps reuse.
func (s Step) Kinds(c CodecProfile, every int) (exact, reuse, mean Step) {
	exact, reuse = s, s
	exact.Costs.Select, reuse.Costs.Select = c.Exact, c.Reuse
	if every > 1 && c.Sent > 0 {
		reuse.Costs.Sends = slices.Clone(s.Costs.Sends)
		for i := range reuse.Costs.Sends {
			reuse.Costs.Sends[i].Payload = reuse.Costs.Sends[i].Payload.Times(c.Sent)
		}
	}
	mean = reuse
	mean.Costs.Select = Mean(c.Exact, c.Reuse, every)
	return exact, reuse, mean
}

// Sends are the profile's ways to carry payloads in a code ("" for any) among ranks on hosts,
// through servers or with 0 among the ranks, in the profile's order.
func (f Profile) Sends(code string, p Payload, ranks, hosts, servers int) []Send {
	var out []Send
	for _, l := range f.Links {
		if !l.carries(code, p, ranks, hosts, servers) {
			continue
		}
		s := Send{Name: l.Algorithm, Payload: p, Fixed: l.Fixed, PerByte: l.PerByte, Above: l.Above, UpTo: l.UpTo}
		if l.Unit > 0 {
			s.Payload.Unit = l.Unit
		}
		out = append(out, s)
	}
	return out
}

// Contention is the mutual slowdown of computation and an exchange by the link that Sends chooses.
func (f Profile) Contention(code string, p Payload, ranks, hosts, servers int) Contention {
	for _, l := range f.Links {
		if l.carries(code, p, ranks, hosts, servers) {
			return l.Contention
		}
	}
	return Contention{}
}

// carries reports whether l matches an exchange.
func (l LinkProfile) carries(code string, p Payload, ranks, hosts, servers int) bool {
	kind := DensePayload
	if p.Density > 0 {
		kind = SparsePayload
	}
	return l.Payload == kind && l.Ranks == ranks && l.Hosts == hosts && l.Servers == servers &&
		(code == "" || l.Code == "" || l.Code == code) && (l.Density <= 0 || l.Density == p.Density)
}

// Validate reports all errors of f.
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
	bad.seconds("rows", f.Rows)
	if f.checkLayers(&bad); len(bad) == 0 && f.Plan != nil {
		if p, err := Cut(f.layers(), f.Plan.Last); err != nil {
			bad.add("plan %q: %w", f.Plan.Name, err)
		} else if sum := p.SHA256(); sum != f.Plan.SHA256 {
			bad.add("plan %q: its hash is %s, the file says %q", f.Plan.Name, sum, f.Plan.SHA256)
		}
		bad.density(fmt.Sprintf("plan %q", f.Plan.Name), f.Plan.Density)
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
			all = math.MinInt32 // reported once
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
		if c.Name == "" || slices.ContainsFunc(f.Codecs[:i], func(o CodecProfile) bool { return o.Name == c.Name && o.Density == c.Density }) {
			bad.add("%s: want a name that no other codec of its density has", what)
		}
		bad.density(what, c.Density)
		if !(c.Sent >= 0) || math.IsInf(c.Sent, 0) {
			bad.add("%s: %s times as many sent: want 0 (not known) or more", what, quantity.Exact(c.Sent))
		}
		bad.curve(what+": exact", c.Exact)
		bad.curve(what+": reuse", c.Reuse)
		bad.curve(what+": after", c.After)
	}
	for i, l := range f.Links {
		what := fmt.Sprintf("link %d %q", i, l.Algorithm)
		if l.Algorithm == "" || slices.ContainsFunc(f.Links[:i], l.same) {
			bad.add("%s for %s payloads, %d ranks, %d hosts: want the name of an algorithm, and no other link that is the same", what, l.Payload, l.Ranks, l.Hosts)
		}
		if l.Payload != DensePayload && l.Payload != SparsePayload {
			bad.add("%s: payload %q: want %s or %s", what, l.Payload, DensePayload, SparsePayload)
		}
		if l.Ranks < 1 || l.Hosts < 1 || l.Hosts > l.Ranks || l.Servers < 0 {
			bad.add("%s: %d ranks on %d hosts, %d servers: want at least one rank a host", what, l.Ranks, l.Hosts, l.Servers)
		}
		bad.seconds(what+": fixed", l.Fixed)
		bad.seconds(what+": per byte", l.PerByte)
		bad.contention(what+": contention", l.Contention)
		bad.density(what, l.Density)
		if !(l.Unit >= 0) || math.IsInf(l.Unit, 0) {
			bad.add("%s: %s bytes an entry: want 0 (not known) or more", what, quantity.Exact(l.Unit))
		}
		bad.bounds(what, l.Above, l.UpTo)
	}
}

// same reports whether two links describe an exchange of the same kind and sizes.
func (l LinkProfile) same(o LinkProfile) bool {
	l.Fixed, l.PerByte, l.Unit, l.Contention = o.Fixed, o.PerByte, o.Unit, o.Contention
	return l == o
}
