package launch

import (
	"fmt"
	"runtime"

	"github.com/ringo-ml/ringo/internal/placement"
)

// Bind selects how processes are bound to processors.
type Bind = placement.Mode

// Values of Bind.
const (
	// BindAuto binds processes if their threads fit the permitted processors and are still unbound.
	BindAuto = placement.Auto
	// BindCore gives each thread a core, or fails.
	BindCore = placement.Core
	// BindNone leaves the placement to the operating system.
	BindNone = placement.None
)

// Binds returns all values of Bind.
func Binds() []Bind { return []Bind{BindAuto, BindCore, BindNone} }

// settle chooses processors for a role, among the processors permitted to the launcher.
func (c *roleGroup) settle() (err error) {
	here := c.on(nil)
	if c.Bind == "" || here == 0 {
		return nil
	}
	c.plan, err = placement.Decide(placement.LocalMachine(), placement.Request{Processes: here, Threads: c.CoresEach, Mode: c.Bind})
	if err == nil && c.plan.Bound() {
		if refused := tryBinding(c.plan.Shares[0]); refused != nil && c.Bind == BindCore {
			err = refused
		} else if refused != nil {
			c.plan = placement.LeftAlone(refused.Error())
		}
	}
	if err != nil {
		return fmt.Errorf("binding the processes of role %q: %w", c.Name, err)
	}
	return nil
}

// tryBinding checks that threads can be bound: a sandbox may forbid binding.
func tryBinding(cpus []int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	undo, err := placement.BindThread(cpus)
	if err == nil {
		undo()
	}
	return err
}

// placed describes the role's processors, or returns "" without a requested placement.
func (c *roleGroup) placed() string { return c.plan.String() }

func (c *Config) tellPlaces(crews []*roleGroup) {
	for _, one := range crews {
		if c.OnPlace != nil && one.placed() != "" {
			c.OnPlace(one.Name, one.placed())
		}
	}
}

// bound runs start with the thread bound to the process's processors, if any. A child inherits the
// affinity of the starting thread, so the caller must be locked to its thread.
func (c *roleGroup) bound(index int, start func() error) error {
	if c.plan.Bound() {
		undo, err := placement.BindThread(c.plan.Shares[index])
		if err != nil {
			return err // tryBinding succeeded before
		}
		defer undo()
	}
	return start()
}
