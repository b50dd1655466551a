package store_test

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/remote/store"
	"github.com/ringo-ml/ringo/internal/remote/store/storetest"
)

func TestFolder(t *testing.T) { storetest.Run(t, store.Folder(t.TempDir())) }
