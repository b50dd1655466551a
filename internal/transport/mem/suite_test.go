package mem

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/meshtest"
	"github.com/ringo-ml/ringo/transport"
)

func TestSuite(t *testing.T) {
	meshtest.Run(t, func(_ testing.TB, n int) []transport.Mesh { return New(n) })
}

func TestSharedSuite(t *testing.T) {
	form := func(_ testing.TB, n int) []transport.Mesh { return NewShared(n, meshtest.ArenaBytes) }
	meshtest.Run(t, form)
	meshtest.RunWindows(t, form)
}
