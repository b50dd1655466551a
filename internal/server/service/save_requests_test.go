package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/ps/schema"
)

// orders a checkpoint of the job.
func (p *peer) orders(request, step, oldest uint64) {
	p.t.Helper()
	p.send(message.TypeSave, message.Head{Number: request, Step: step, At: oldest}, nil)
}

// saved gets the number of the server's part.
func (p *peer) saved(request, step, number uint64) {
	p.t.Helper()
	typ, h, _, err := p.Next()
	must(p.t, err)
	if want := (message.Head{Number: request, Step: step, At: number}); typ != message.TypeSaved || h != want {
		p.t.Fatalf("got %s %+v, want %+v", message.Name(typ), h, want)
	}
}

// All trainers get the number of what was saved once, also one whose connection broke and that asks again;
// a fault is told.
func TestSave(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 2, nil)
	a, _ := w.join(hello(0, 2))
	b, _ := w.join(hello(1, 2))
	a.orders(1, 10, 10)
	a.saved(1, 10, 1)
	a.orders(2, 20, 10)
	b.orders(7, 10, 10)
	b.saved(7, 10, 1)
	a.saved(2, 20, 2)
	b, _ = w.join(hello(1, 2))
	b.orders(8, 20, 10)
	b.saved(8, 20, 2)
	w.engine.FailNext(errors.New("the disk is full"))
	a.orders(3, 30, 10)
	if text := string(a.gets(message.TypeFailed, 3)); text != "the disk is full" {
		t.Errorf("got %q", text)
	}
	if got := w.engine.Saves(); !slices.Equal(got, []uint64{10, 20}) {
		t.Errorf("saved after %v", got)
	}
	a.leaves(1)
	b.leaves(1)
	must(t, w.end())
}

// slow is an engine whose saves take until they are told to end.
type slow struct {
	*fake.Engine
	began, end chan struct{}
}

func (s slow) SaveStep(ctx context.Context, step, oldest uint64) (uint64, error) {
	s.began <- struct{}{}
	select {
	case <-s.end:
		return s.Engine.SaveStep(ctx, step, oldest)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// While a server saves its connections go on, and when it ends it does not wait for the end of that.
func TestSaveTakesLong(t *testing.T) {
	leakcheck.Check(t)
	e := slow{began: make(chan struct{}), end: make(chan struct{})}
	w := start(t, 1, func(c *Config, ec *fake.Config) {
		c.Open = func(sc schema.Schema) (Engine, error) {
			ec.Sessions = 1
			e.Engine = fake.New(*ec, sc)
			return e, nil
		}
	})
	p, _ := w.join(hello(0, 1))
	p.orders(1, 5, 5)
	<-e.began
	p.pulls(2, 1, 4)
	p.row(2, 0, 0, 0)
	e.end <- struct{}{}
	p.saved(1, 5, 1)
	p.orders(3, 6, 5)
	<-e.began
	w.cancel()
	for typ, _ := p.next(); typ != message.TypeGoodbye; {
		typ, _ = p.next()
	}
	must(t, p.Link().Close())
	if err := w.end(); err != nil && !strings.Contains(err.Error(), "cancel") {
		t.Error(err)
	}
}
