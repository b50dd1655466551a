package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// dense is this server's range of an array, with its optimizer. A push locks it while the rule
// updates its values; pulls share the lock.
type dense struct {
	schema.Dense
	lo, hi int   // range in the whole array
	bytes  int64 // values and optimizer state

	mu     sync.RWMutex
	opt    optim.Optimizer
	params []float32
	set    int      // number of leading values with an initial value
	step   uint64   // step of the last BeginStep
	begun  bool     // BeginStep has run in this process
	lr     float64  // learning rate at BeginStep
	marks  []uint64 // last applied change by session
}

func newDense(c Config, d schema.Dense) (*dense, error) {
	lo, hi := schema.Cut(d.Len, c.Servers, c.Index)
	a := &dense{Dense: d, lo: lo, hi: hi, params: make([]float32, hi-lo), marks: make([]uint64, c.Trainers*c.Sessions)}
	var err error
	if a.opt, err = d.Rule.Dense(); err != nil {
		return nil, err
	}
	if c.Mode == Geo {
		a.opt = &optim.SGD{LR: 1}
	}
	if err := a.opt.Bind(hi - lo); err != nil {
		return nil, err
	}
	a.bytes = 4 * int64(hi-lo)
	for _, s := range a.opt.State() {
		a.bytes += 4 * int64(len(s.Data))
	}
	return a, nil
}

func (d *dense) complete() bool { return d.set == d.hi-d.lo }

// ready returns an error unless all values have been initialised.
func (d *dense) ready() error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if !d.complete() {
		return fmt.Errorf("array %q: %w", d.Name, d.unset())
	}
	return nil
}

func (d *dense) unset() error {
	return fmt.Errorf("it has initial values up to %d of %d only: trainer 0 sends them first", d.lo+d.set, d.hi)
}

func (d *dense) check(lo, n int) error {
	if lo < d.lo || lo > d.hi || n > d.hi-lo {
		return fmt.Errorf("values %d to %d: this server holds %d to %d", lo, lo+n, d.lo, d.hi)
	}
	return nil
}

// initial sets values from lo that have no value yet, and reports whether the range has become
// complete. A repetition has no effect, so that no change number is stored.
func (d *dense) initial(lo int, values []float32) (completed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.lo + d.set
	switch {
	case lo > next:
		return false, fmt.Errorf("initial values from %d on, those from %d on come first", lo, next)
	case lo+len(values) > next && !d.complete():
		d.set += copy(d.params[d.set:], values[next-lo:])
		completed = d.complete()
	}
	return completed, nil
}

// push applies gradients to values from lo. Adam counts the steps of the trainer with the most.
func (d *dense) push(session int, seq, step uint64, lo int, grads []float32, scale float32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if seq <= d.marks[session] {
		return nil
	}
	d.begin(step)
	if len(grads) == 0 {
		return nil
	}
	d.opt.Update(lo-d.lo, d.params[lo-d.lo:][:len(grads)], grads, scale)
	d.marks[session] = seq
	return nil
}

// begin begins a step for the optimizer, once. After a restart the step may be begun again, with
// the earlier rate, because values that the optimizer computes per step are not part of its state.
func (d *dense) begin(step uint64) {
	if step <= d.step && d.begun {
		return
	}
	rate := d.opt.CurrentLR()
	if step <= d.step {
		d.opt.SetLR(d.lr)
		for _, s := range d.opt.State() {
			if s.Name == "step" && len(s.Data) == 2 { // two digits of base 2^16
				n := uint64(s.Data[0]) + uint64(s.Data[1])<<16
				n -= min(n, 1)
				s.Data[0], s.Data[1] = float32(n&0xffff), float32(n>>16)
			}
		}
	}
	d.lr = d.opt.CurrentLR()
	d.opt.BeginStep()
	d.opt.SetLR(rate)
	d.step, d.begun = max(d.step, step), true
}

func (d *dense) setLR(rate float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opt.SetLR(rate)
}

func (d *dense) pull(lo int, dst []float32) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if !d.complete() {
		return d.unset()
	}
	copy(dst, d.params[lo-d.lo:])
	return nil
}

// denseHead describes a saved range. The values and the states follow.
type denseHead struct {
	Of     string      `json:"of"`
	Name   string      `json:"name"`
	Len    int         `json:"len"`
	Lo     int         `json:"lo"`
	Hi     int         `json:"hi"`
	Set    int         `json:"set"`
	Step   uint64      `json:"step"`
	LR     float64     `json:"lr"`
	Marks  []uint64    `json:"marks"`
	States []denseInfo `json:"states"`
}

type denseInfo struct {
	Name string `json:"name"`
	Len  int    `json:"len"`
}

// save writes a copy of the range as of one moment. Pushes wait for the copy, not for the disk.
func (d *dense) save(w io.Writer, of string) error {
	d.mu.RLock()
	head := denseHead{Of: of, Name: d.Name, Len: d.Len, Lo: d.lo, Hi: d.hi, Set: d.set, Step: d.step, LR: d.lr, Marks: slices.Clone(d.marks)}
	all := [][]float32{slices.Clone(d.params)}
	for _, s := range d.opt.State() {
		head.States = append(head.States, denseInfo{s.Name, len(s.Data)})
		all = append(all, slices.Clone(s.Data))
	}
	d.mu.RUnlock()
	if err := writeHead(w, head); err != nil {
		return err
	}
	for _, values := range all {
		if _, err := w.Write(bytesview.Bytes(values)); err != nil {
			return err
		}
	}
	return nil
}

// load reads the range of a server, of this or another number, and stores the values that this
// server has. If own is true, it also restores the numbers of applied changes. The values are valid
// only if load returns no error.
func (d *dense) load(ctx context.Context, r io.Reader, of string, own bool) error {
	var head denseHead
	if err := readHead(r, &head); err != nil {
		return err
	}
	if err := belongs(head.Of, of); err != nil {
		return err
	}
	n := head.Hi - head.Lo
	if head.Name != d.Name || head.Len != d.Len || head.Lo < 0 || n < 0 || head.Hi > head.Len || head.Set < 0 || head.Set > n {
		return fmt.Errorf("it holds values %d to %d of %d of array %q, not of %d of %q", head.Lo, head.Hi, head.Len, head.Name, d.Len, d.Name)
	}
	states := d.opt.State()
	if own && (head.Lo != d.lo || head.Hi != d.hi || len(head.Marks) != len(d.marks)) {
		return fmt.Errorf("array %q: it holds values %d to %d for %d sessions, this server has %d to %d for %d", d.Name, head.Lo, head.Hi, len(head.Marks), d.lo, d.hi, len(d.marks))
	}
	if !(head.LR >= 0) || math.IsInf(head.LR, 0) {
		return fmt.Errorf("array %q: a learning rate of %s", d.Name, quantity.Exact(head.LR))
	}
	if len(head.States) != len(states) {
		return fmt.Errorf("array %q: it has %d parts of optimizer state, %s has %d", d.Name, len(head.States), d.opt.Name(), len(states))
	}
	if head.Set != n && !own {
		return fmt.Errorf("array %q: its initial values had not come when it was saved", d.Name)
	}
	if err := d.take(ctx, r, d.params, head.Lo, n); err != nil {
		return err
	}
	for i, s := range states {
		info := head.States[i]
		if want := stateLen(s, n); info.Name != s.Name || info.Len != want {
			return fmt.Errorf("array %q: optimizer state %q of %d values where %q of %d belongs", d.Name, info.Name, info.Len, s.Name, want)
		}
		var err error
		if perValue(s.Name) {
			err = d.take(ctx, r, s.Data, head.Lo, n)
		} else {
			err = readFloats(r, s.Data)
		}
		if err != nil {
			return err
		}
	}
	if !own { // new job, with steps from 1
		d.set = d.hi - d.lo // Open loads all servers' ranges
		return nil
	}
	d.set, d.step, d.lr = head.Set, head.Step, head.LR
	copy(d.marks, head.Marks)
	return nil
}

// ReadArray reads a server's range of an array from a checkpoint into its position in whole, and
// returns its number of values.
func ReadArray(ctx context.Context, s *snapshot.Snapshot, array int, whole []float32) (n int, err error) {
	a, err := AboutOf(s)
	if err != nil {
		return 0, err
	}
	r, err := s.Open(denseFile(array))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var head denseHead
	if err := readHead(r, &head); err != nil {
		return 0, err
	}
	if err := belongs(head.Of, a.of(denseFile(array), s.Number)); err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Join(s.Dir, denseFile(array)), err)
	}
	n = head.Hi - head.Lo
	if head.Len != len(whole) || head.Lo < 0 || n < 0 || head.Hi > head.Len || head.Set != n {
		return 0, fmt.Errorf("array %q: it holds values %d to %d of %d, %d of them set, where %d are asked for", head.Name, head.Lo, head.Hi, head.Len, head.Set, len(whole))
	}
	d := &dense{hi: len(whole)}
	if err := d.take(ctx, r, whole, head.Lo, n); err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r) // the checksum covers the whole file
	return n, err
}

// belongs returns an error for a file with a wrong owner string.
func belongs(has, of string) error {
	if has != of {
		return fmt.Errorf("it is of %s, where the file of %s belongs: it was copied or renamed; bring the file that was here back from a copy, or load an older checkpoint", has, of)
	}
	return nil
}

// perValue reports whether a part of an optimizer's state has one value per parameter.
func perValue(state string) bool { return state != "step" }

// stateLen returns the number of values in a part of the state of n parameters.
func stateLen(s optim.State, n int) int {
	if perValue(s.Name) {
		return n
	}
	return len(s.Data)
}

// take reads n values from index lo of the whole array, and stores the values in this range.
func (d *dense) take(ctx context.Context, r io.Reader, to []float32, lo, n int) error {
	part := make([]float32, min(n, 1<<16))
	for at := lo; at < lo+n; at += len(part) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		part = part[:min(len(part), lo+n-at)]
		if err := readFloats(r, part); err != nil {
			return err
		}
		from, end := max(at, d.lo), min(at+len(part), d.hi)
		if from < end {
			copy(to[from-d.lo:end-d.lo], part[from-at:])
		}
	}
	return nil
}

func readFloats(r io.Reader, to []float32) error {
	if _, err := io.ReadFull(r, bytesview.Bytes(to)); err != nil {
		return fmt.Errorf("reading %d values: %w", len(to), err)
	}
	return nil
}

const maxHead = 1 << 20

// writeHead writes a head: its length in 4 bytes, and JSON.
func writeHead(w io.Writer, head any) error {
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if len(b) > maxHead {
		return fmt.Errorf("a description of %d bytes: at most %d", len(b), maxHead)
	}
	n := len(b)
	_, err = w.Write(append([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, b...))
	return err
}

func readHead(r io.Reader, head any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return fmt.Errorf("reading its description: %w", err)
	}
	n := int(size[0]) | int(size[1])<<8 | int(size[2])<<16 | int(size[3])<<24
	if n > maxHead {
		return fmt.Errorf("a description of %d bytes: at most %d", n, maxHead)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("reading its description: %w", err)
	}
	if err := json.Unmarshal(b, head); err != nil {
		return fmt.Errorf("its description: %w", err)
	}
	return nil
}

// atEnd returns an error if data follow.
func atEnd(r io.Reader) error {
	var b [1]byte
	n, err := io.ReadFull(r, b[:])
	if n > 0 {
		return errors.New("there is more in it than its description says")
	}
	if err == io.EOF {
		return nil
	}
	return err
}
