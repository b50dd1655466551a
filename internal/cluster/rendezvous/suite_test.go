package rendezvous_test

import (
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous/rendezvoustest"
)

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	rendezvoustest.Run(t, func(_ *testing.T, name string) rendezvous.Backend { return rendezvous.File(filepath.Join(dir, name)) }, false)
}
