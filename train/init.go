package train

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train/internal/tensornames"
	"github.com/ringo-ml/ringo/weights"
)

// Init selects initial values of a model's parameters, and the parameters to train. Fine-tuning
// begins with the values of another run, freezes a part and replaces the last layer.
//
// Patterns are as in path.Match, such as "layer1.*", where * matches any characters. A pattern
// matches the parameter's name in the model or in PyTorch's state_dict (model.Spec.PyTorch). A
// pattern without a match is an error.
type Init struct {
	// From is a safetensors file, a .npz, a checkpoint, or a run's folder, which means the last
	// checkpoint. Parameters, tables and running statistics begin with the file's values of equal
	// names; the run is new otherwise. A checkpoint of a run with servers must be of the same model
	// (Servers.OpenServerCheckpoint); it also has the rows of the servers' tables. Rank 0 alone
	// reads the file, and servers read the rows of their tables (Servers.Begin). A resumed run does
	// not read the file. If both runs have names of columns, categories, slots, classes and words,
	// values within tensors are matched by name; other differences of shape are an error. "" means
	// random values.
	From string
	// Except are patterns of tensors that keep random values, such as a last layer of new classes.
	Except []string
	// Freeze are patterns of parameters that keep their values. Ranks do not exchange frozen
	// parameters, and these have no optimizer state. Running statistics of a batch normalisation
	// still change, as in PyTorch.
	Freeze []string
	// Rates multiply the learning rate of some parameters. The last match counts.
	Rates []Rate
}

// Rate multiplies the learning rate of parameters that match a pattern by a positive factor.
type Rate struct {
	Pattern string
	Factor  float64
}

func (s *Init) settings() []setting.Row {
	from := setting.Enabled("training.init-from")
	return []setting.Row{
		{Path: "training.init-from", Flag: "init-from", Unit: "FILE", Scope: setting.PerProcess, Value: setting.Text(&s.From),
			About: "initial weights: a safetensors file, a .npz, a checkpoint or a run's folder; tensors, columns, categories and classes are matched by name"},
		{Path: "training.init-except", Unit: "PATTERN,…", Needs: from, Value: setting.List(&s.Except),
			About: "parameters that begin with random values nevertheless, by name, such as fc.* for another head"},
		{Path: "training.freeze", Unit: "PATTERN,…", Value: setting.List(&s.Freeze),
			About: "parameters that keep their values and are not exchanged, by name, such as layer1.*,layer2.*"},
		{Path: "training.lr-multipliers", Unit: "PATTERN=FACTOR,…", Scope: setting.JobMutable, Value: setting.Parsed(&s.Rates, parseRates, formatRates),
			About: "factors on the learning rate of parameters, by name, such as fc.*=10; the last match counts"},
	}
}

// parseRates reads PATTERN=FACTOR, separated by commas.
func parseRates(text string) (rates []Rate, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		at := strings.LastIndexByte(part, '=')
		factor, err := strconv.ParseFloat(strings.TrimSpace(part[at+1:]), 64)
		if at < 0 || err != nil {
			return nil, fmt.Errorf("%q: want PATTERN=FACTOR, such as fc.*=10", part)
		}
		rates = append(rates, Rate{strings.TrimSpace(part[:at]), factor})
	}
	return rates, nil
}

func formatRates(rates []Rate) string {
	parts := make([]string, len(rates))
	for i, r := range rates {
		parts[i] = r.Pattern + "=" + strconv.FormatFloat(r.Factor, 'g', -1, 64)
	}
	return strings.Join(parts, ",")
}

func (s Init) validate(f *setting.Faults) {
	for _, r := range s.Rates {
		f.Add(!(r.Factor > 0) || math.IsInf(r.Factor, 0), "training.lr-multipliers", "%s: want a positive number; %v leaves parameters as they are", formatRates([]Rate{r}), setting.Path("training.freeze"))
	}
	for _, p := range s.Except {
		_, err := path.Match(p, "")
		f.Add(err != nil, "training.init-except", "%s: %w", p, err)
	}
	f.Add(s.From == "" && len(s.Except) > 0, "training.init-except", "%s has no effect without %v", strings.Join(s.Except, ","), setting.Path("training.init-from"))
}

// choose freezes parameters and sets rates, before the arena is laid out.
func (s Init) choose(ps *nn.Params, names weights.Names) error {
	ps.Alias(names)
	var errs []error
	if err := ps.Freeze(s.Freeze...); err != nil {
		errs = append(errs, setting.Errorf("training.freeze", "%w", errors.Unwrap(err)))
	}
	for _, r := range s.Rates {
		if err := ps.SetRate(r.Factor, r.Pattern); err != nil {
			errs = append(errs, setting.Errorf("training.lr-multipliers", "%w", errors.Unwrap(err)))
		}
	}
	return errors.Join(errs...)
}

// CheckInit returns an error if the file of c.Start is missing or has no weights, as Run would on
// rank 0. A resumed run does not need the file.
func CheckInit(c Config) error {
	if c.Start.From == "" {
		return nil
	}
	if c.Checkpoint.Resume {
		if _, err := checkpoint.Locate(c.Checkpoint.Dir); !errors.Is(err, checkpoint.ErrNone) {
			return nil // resuming reports the error
		}
	}
	f, err := weights.OpenSource(c.Start.From)
	if err != nil {
		return err
	}
	return f.Close()
}

// initParams loads the values of c.Start.From into rank 0's replica before begin, and returns lines
// about them. Other ranks receive the values in begin and shareUntrained.
func (r *Replica) initParams(c Config) (lines []string, err error) {
	s := c.Start
	if s.From == "" {
		return nil, nil
	}
	if r.job.ServersOnly() && len(r.untrained()) > 0 {
		return nil, setting.Errorf("training.init-from", "%s: ranks that continue without lost ranks cannot share frozen parameters and running statistics: use --ps-failure-policy fail", s.From)
	}
	if r.job.Rank() != 0 {
		return nil, nil
	}
	src, err := c.openSource(r.Params.Tables())
	if err != nil {
		return nil, err
	}
	if lines, err = r.take(&src, c); err != nil {
		err = fmt.Errorf("beginning with %s: %w", src.Path, err)
	}
	return lines, errors.Join(err, src.Close())
}

func (r *Replica) take(src *initSource, c Config) ([]string, error) {
	nodes, err := nn.Trace(func(t *nn.Tape) { r.model.Forward(t, r.Spec.Sample(1)) })
	r.model.Reset()
	if err != nil {
		return nil, err
	}
	names := r.Spec.PyTorch
	m := src.Model(r.Params, nodes, names)
	except, err := exceptions(c.Start.Except, m.Names(), weights.Of(r.Params, nil, nil).Names(), names)
	if err != nil {
		return nil, err
	}
	mapped, err := r.byName(src, c, except)
	if err != nil {
		return nil, err
	}
	fit, err := m.Fit(src.Tensors, except)
	if err != nil {
		return nil, fmt.Errorf("%w; %v leaves a tensor of the model at its own first values", err, setting.Path("training.init-except"))
	}
	if len(fit.Elsewhere) > 0 && !c.Servers.Begin {
		return nil, fmt.Errorf("%s: its rows are on servers started without the file: let `ringo train` start the servers, or start them from a checkpoint of servers (ps.init-from); %v keeps the table's first values", tensornames.Enumerate(fit.Elsewhere), setting.Path("training.init-except"))
	}
	if len(fit.Taken)+len(fit.Elsewhere) == 0 {
		return nil, fmt.Errorf("it has no tensor of the model: that has %s, the file %s", tensornames.Enumerate(fit.Unmatched), tensornames.Enumerate(fit.Unused))
	}
	if err := fit.Put(src.Read); err != nil {
		return nil, err
	}
	from := src.Path
	if src.Chosen != "" {
		from += " (" + src.Chosen + ")"
	}
	lines := []string{fmt.Sprintf("begun with %s: %s taken", from, tensors(len(fit.Taken)))}
	lines = append(lines, mapped...)
	if len(fit.Elsewhere) > 0 {
		lines = append(lines, "taken by the servers: the rows of "+tensornames.Enumerate(fit.Elsewhere))
	}
	if len(fit.Unmatched) > 0 {
		lines = append(lines, "left at random first values: "+tensornames.Enumerate(fit.Unmatched))
	}
	if len(fit.Unused) > 0 {
		lines = append(lines, "not used of the file: "+tensornames.Enumerate(fit.Unused))
	}
	return lines, nil
}

// exceptions returns a function that reports whether a pattern matches a tensor's name, in ringo or
// in PyTorch. own are the model's names, known the names in a source of the same kind.
func exceptions(patterns, known, own []string, names weights.Names) (func(name string) bool, error) {
	matched := map[string]bool{}
	var errs []error
	for _, pattern := range patterns {
		found := false
		all := slices.Clone(known)
		for _, name := range own {
			there := name
			if names != nil {
				there = names(name)
			}
			here, _ := path.Match(pattern, name)
			other, _ := path.Match(pattern, there)
			if here || other {
				matched[name], matched[there], found = true, true, true
			}
			all = append(all, name)
		}
		if !found {
			errs = append(errs, setting.Errorf("training.init-except", "%s: the model has no such tensor%s", pattern, nn.Near(pattern, all)))
		}
	}
	return func(name string) bool { return matched[name] }, errors.Join(errs...)
}

func tensors(n int) string { return quantity.Count(n, "tensor") }

func (r *Replica) untrained() (out [][]float32) {
	for _, p := range r.Params.Frozen() {
		out = append(out, p.Data)
	}
	if b := r.Params.Buffers(); len(b) > 0 {
		out = append(out, b)
	}
	return out
}

// shareUntrained broadcasts rank 0's values of parameters that are not trained. All ranks call it.
func (r *Replica) shareUntrained() error {
	if r.job.ServersOnly() {
		return nil // the seed gives all ranks the same values
	}
	for _, x := range r.untrained() {
		if err := collective.Broadcast(r.job.Group(), x, 0); err != nil {
			return fmt.Errorf("handing out frozen parameters and running statistics: %w", err)
		}
	}
	return nil
}

// share is a number of tensors and of their values.
type share struct{ tensors, values int }

func (s *share) add(values int) { s.tensors, s.values = s.tensors+1, s.values+values }

func (s share) String() string {
	return fmt.Sprintf("%s of %s", tensors(s.tensors), quantity.Count(s.values, "value"))
}

// trained counts frozen parameters, parameters that heter-trainers own and train, other trained
// parameters, and the tables that have their rows on servers.
func (r *Replica) trained() (frozen, theirs, rest share, tables int) {
	var owned []string
	if r.split != nil && !r.split.stateless {
		owned = r.split.cut.Params
	}
	for _, p := range r.Params.List() {
		switch {
		case slices.Contains(owned, p.Name):
			theirs.add(len(p.Data))
		case p.Frozen():
			frozen.add(len(p.Data))
		case p.Name != standInName:
			rest.add(len(p.Data))
		}
	}
	for _, t := range r.Params.Tables() {
		if len(t.Data) == t.Rows*t.Dim {
			rest.add(len(t.Data))
		} else {
			tables++
		}
	}
	return frozen, theirs, rest, tables
}

// chosen returns lines about parameters that are frozen, trained by heter-trainers, or trained at
// another rate.
func (r *Replica) chosen() (lines []string) {
	frozen, theirs, rest, tables := r.trained()
	var trained []string
	if theirs.tensors > 0 {
		trained = append(trained, fmt.Sprintf("%v by heter-trainers", theirs))
	}
	if rest.tensors > 0 {
		trained = append(trained, rest.String())
	}
	if tables > 0 {
		trained = append(trained, fmt.Sprintf("the rows of tables on servers (%d)", tables))
	}
	if frozen.tensors > 0 {
		lines = append(lines, fmt.Sprintf("frozen: %v", frozen))
	}
	if frozen.tensors+theirs.tensors > 0 {
		lines = append(lines, "trained: "+strings.Join(trained, ", "))
	}
	if p, ok := r.params.(*replicatedParams); ok && p.average != nil {
		lines = append(lines, fmt.Sprintf("evaluated and saved: the average of the weights over the steps (decay %s)", quantity.Exact(p.average.decay)))
	}
	byRate := map[float64]int{}
	for _, s := range r.Params.Slots() {
		if s.Rate != 1 {
			byRate[s.Rate]++
		}
	}
	for _, rate := range slices.Sorted(maps.Keys(byRate)) {
		lines = append(lines, fmt.Sprintf("%s times the learning rate: %s", quantity.Exact(rate), tensors(byRate[rate])))
	}
	return lines
}
