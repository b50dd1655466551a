package launch

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/record"
	"github.com/ringo-ml/ringo/transport"
)

// Processes of one ticket find what the others have left, and those of another do not; the error says what that shows.
func TestLeft(t *testing.T) {
	folder, ticket := t.TempDir(), transport.NewTicket()
	var recs [2]*record.Recorder
	for rank := range recs {
		l := LeaveIn(folder, ticket) // each process makes its own
		recs[rank] = l.Recorder(record.Who{Role: record.Rank, Number: rank})
		defer recs[rank].Close()
	}
	l, fault := LeaveIn(folder, ticket), errors.New("it failed")
	if other := LeaveIn(folder, transport.NewTicket()).Files(); len(l.Files()) != 2 || len(other) > 0 || strings.Contains(l.pattern(), ticket.String()[:12]) {
		t.Errorf("files %v, of another ticket %v", l.Files(), other)
	}
	recs[0].Begin(&record.Event{Kind: record.Operation, Name: recs[0].Name("allreduce"), Seq: 0, Bucket: -1, With: -1, Peer: -1, Begun: 1}).Wait().For(1, 2)
	var told *RecordedError
	if err := l.Explain(fault, recs[0].File()); !errors.As(err, &told) || !errors.Is(err, fault) || told.Finding == nil || told.Finding.Missing[0].Rank != "rank 1" ||
		!strings.HasSuffix(err.Error(), "ringo blackbox "+l.pattern()) {
		t.Errorf("%v", err)
	}
	l.Forget(recs[0])
	if err := l.Explain(fault, recs[1].File()); err != fault || len(l.Files()) > 0 { // nothing is under way any more
		t.Errorf("%v, left: %v", err, l.Files())
	}
	if none := LeaveIn("", ticket); none.Recorder(record.Who{}).File() != "" || none.Explain(fault) != fault {
		t.Error("without a folder something is left")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v: %v", err, left)
	}
}
