package launch

import (
	"fmt"
	"runtime"

	"github.com/ringo-ml/ringo/internal/placement"
)

// Bind says who decides on which processors processes run.
type Bind = placement.Mode

// What a Bind may be.
const (
	// BindAuto binds processes where they and their threads fit the processors that they may use, and where nobody has
	// bound them already.
	BindAuto = placement.Auto
	// BindCore gives each thread a core, or fails.
	BindCore = placement.Core
	// BindNone leaves all to the system.
	BindNone = placement.None
)

// Binds are all of them.
func Binds() []Bind { return []Bind{BindAuto, BindCore, BindNone} }

// settle decides where the processes of a role run: among the processors that the launcher may use.
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

// tryBinding finds out whether threads can be bound: a sandbox may forbid it.
func tryBinding(cpus []int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	undo, err := placement.BindThread(cpus)
	if err == nil {
		undo()
	}
	return err
}

// placed tells where the processes of a role run, empty where that was nobody's concern.
func (c *roleGroup) placed() string { return c.plan.String() }

// tellPlaces tells the caller of all roles that are to be bound.
func (c *Config) tellPlaces(crews []*roleGroup) {
	for _, one := range crews {
		if c.OnPlace != nil && one.placed() != "" {
			c.OnPlace(one.Name, one.placed())
		}
	}
}

// bound runs start, which starts a process of the role, with that process bound to its share of the processors, if
// there is one. A child inherits the affinity of the thread that starts it, so the caller must hold on to its thread.
func (c *roleGroup) bound(index int, start func() error) error {
	if c.plan.Bound() {
		undo, err := placement.BindThread(c.plan.Shares[index])
		if err != nil {
			return err // it worked when it was tried
		}
		defer undo()
	}
	return start()
}
