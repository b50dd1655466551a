package tcp

import (
	"testing"

	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/transport/meshtest"
)

func asMeshes(meshes []*Mesh) []transport.Mesh {
	out := make([]transport.Mesh, len(meshes))
	for i, m := range meshes {
		out[i] = m
	}
	return out
}

func TestSuite(t *testing.T) {
	meshtest.Run(t, func(t testing.TB, n int) []transport.Mesh { return asMeshes(formed(t, n, nil)) })
}
