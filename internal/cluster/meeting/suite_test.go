package meeting_test

import (
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo/internal/cluster/meeting"
	"github.com/ringo-ml/ringo/internal/cluster/meeting/meetingtest"
)

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	meetingtest.Run(t, func(_ *testing.T, name string) meeting.Backend { return meeting.File(filepath.Join(dir, name)) }, false)
}
