package blackbox

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// asks begins a request of a trainer at a server, or at a server of a trainer, which waits for peer.
func asks(rec *record.Recorder, seq uint32, step int64, with, peer int) record.Op {
	op := rec.Begin(&record.Event{
		Kind: record.Request, Name: rec.Name("pull of rows"), Label: rec.Name("tastes"), Seq: seq, Step: step, Other: int32(with), Peer: -1, Bucket: -1, Size: 80, Sig: 5,
		Begun: rec.Now(),
	})
	if peer >= 0 {
		op.Wait().For(peer, rec.Now())
	}
	return op
}

// served merges what ranks and servers that keep parameters have recorded, with how each ended.
func served(hows []string, recs ...*record.Recorder) *File {
	b := &File{Written: time.Now()}
	for i, name := range []string{"rank 0", "rank 1", "parameter server 0", "parameter server 1"} {
		p := Process{Name: name, Rank: i, Serves: i > 1, ExitStatus: hows[i], Lost: hows[i] == "no sign of life for 3s"}
		if p.Serves {
			p.Rank = -1
		}
		b.Add(p, recs[i].Snapshot())
	}
	return b
}

func TestFindRequests(t *testing.T) {
	const killed = "killed by signal 9 (SIGKILL)"
	for _, c := range []struct {
		name string
		hows [4]string
		play func(rank0, rank1, server0, server1 *record.Recorder)
		want string
	}{
		{"nobody waits", [4]string{}, func(_, b, server, _ *record.Recorder) { asks(b, 1, 1, 0, -1).End(2, 0, false) }, "<nil>"},
		{"a rank is killed for which another waits", [4]string{1: killed}, func(a, b, server, _ *record.Recorder) {
			b.BeginStep(6)
			b.BeginPhase(record.Backward, 1)
			asks(a, 8, 8, 0, 0)
			asks(server, 8, 8, 0, 1).End(5, 0, true) // refused when it was lost
		}, "request 8 (pull of rows of 80 bytes), table tastes, for step 8: rank 1 had not come so far (in backward of step 7, killed by signal 9 (SIGKILL)); rank 0 waited for rank 1"},
		{"a rank is stopped before it reads an answer", [4]string{1: "no sign of life for 3s"}, func(a, b, server, _ *record.Recorder) {
			asks(b, 3, 7, 0, 0)
			asks(server, 3, 7, 1, -1).End(4, 0, false)
			asks(a, 8, 8, 0, 0)
			asks(server, 8, 8, 0, 1)
		}, "request 8 (pull of rows of 80 bytes), table tastes, for step 8: rank 1 had not come so far (no sign of life for 3s); rank 0 waited for rank 1"},
		{"a server is killed, and at the other one ranks wait for each other", [4]string{3: killed}, func(a, b, server, dead *record.Recorder) {
			asks(a, 5, 6, 1, 1)
			asks(b, 5, 7, 0, 0)
			asks(server, 5, 7, 1, 0)
			asks(dead, 5, 6, 0, 1)
		}, "request 5 (pull of rows of 80 bytes), table tastes, for step 6: parameter server 1 had not answered it (killed by signal 9 (SIGKILL)); rank 0 waited for parameter server 1"},
		{"nobody was killed: a server answers nothing, and who waits for it holds up another", [4]string{}, func(a, b, server, _ *record.Recorder) {
			asks(a, 5, 6, 1, 1)
			asks(b, 5, 7, 0, 0)
			asks(server, 5, 7, 1, 0)
		}, "request 5 (pull of rows of 80 bytes), table tastes, for step 6: parameter server 1 had not answered it; rank 0 waited for parameter server 1"},
		{"a rank asks ahead, which is no wait", [4]string{}, func(a, _, server, _ *record.Recorder) {
			asks(a, 5, 6, 0, 0)
			asks(server, 5, 6, 0, 0)
		}, "<nil>"},
		{"a rank is killed for which nobody waits", [4]string{killed}, func(a, b, _, _ *record.Recorder) {
			asks(a, 5, 6, 0, 0).End(9, 0, false)
			asks(b, 5, 6, 0, 0)
		}, "request 5 (pull of rows of 80 bytes), table tastes, for step 6: it was the last of rank 0 (killed by signal 9 (SIGKILL))"},
		{"a fault in a bucket", [4]string{}, func(a, _, _, _ *record.Recorder) {
			a.BeginStep(3)
			a.Add(&record.Event{Kind: record.Fault, Name: a.Name("another bucket"), Label: a.Name("bucket 1 (fc)"), Bucket: 1, Peer: 1, Other: -1, Begun: 4})
		}, "fault in bucket 1 (fc), in step 4: rank 0 found: another bucket"},
	} {
		recs := make([]*record.Recorder, 4)
		for i := range recs {
			recs[i] = record.New(record.Config{})
		}
		c.play(recs[0], recs[1], recs[2], recs[3])
		got := "<nil>"
		if f := served(c.hows[:], recs...).Find(); f != nil {
			got = f.String()
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// What processes have left is merged, ranks first, with what the files say of them; servers that sum learn the buckets from the ranks.
func TestGather(t *testing.T) {
	folder := t.TempDir()
	var paths []string
	for i, who := range []record.Identity{{Role: record.AggregationServer, Number: 1}, {Role: record.Rank, Number: 0}, {Role: record.ParameterServer, Number: 0}} {
		path := filepath.Join(folder, string(rune('a'+i)))
		r, err := record.InFile(path, record.Config{})
		if err != nil {
			t.Skip(err) // not on this system
		}
		r.SetProcess(who)
		r.BeginStep(4)
		e := record.Event{Kind: record.Request, Name: r.Name("exchange"), Group: record.AggregationGroup, Seq: 9, Step: -1, Bucket: -1, Other: -1, Peer: -1, Begun: r.Now()}
		if who.Role == record.Rank {
			e.Kind, e.Bucket, e.Label = record.Operation, 2, r.Name("bucket 2 (fc)")
		}
		r.Begin(&e).Wait().For(1-who.Number, r.Now())
		if who.Role == record.ParameterServer {
			r.Release()
		}
		defer r.Close()
		paths = append(paths, path)
	}
	b, err := Gather(paths)
	if err != nil || len(b.Processes) != 3 {
		t.Fatalf("%v: %+v", err, b)
	}
	for i, name := range []string{"rank 0", "rank 1", "parameter server 0"} {
		if p := b.Processes[i]; p.Name != name || p.Serves != (i > 0) || p.ExitStatus != "" {
			t.Errorf("process %d: %+v", i, p)
		}
	}
	if e := b.Processes[1].Open[0]; e.Label != "bucket 2 (fc)" || e.Step != 4 || e.Bucket != 2 {
		t.Errorf("the server says %+v", e)
	}
	const finds = "operation 9 of those through servers (exchange), bucket 2 (fc), in step 5: rank 0 waited for rank 1"
	if f := b.Find(); f == nil || f.String() != finds {
		t.Errorf("it shows %v\n    want %s", f, finds)
	}
	if _, err := Gather([]string{filepath.Join(folder, "none")}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v", err)
	}
}

// Where the order of operations is a guess the box says so.
func TestOrderThatIsNotKnown(t *testing.T) {
	op := func(group uint32, begun int64) Entry {
		return Entry{Kind: "operation", Group: group, Begun: begun, Peer: -1, With: -1}
	}
	for _, c := range []struct {
		entries []Entry
		want    bool
	}{
		{[]Entry{op(0, 0), op(0, 3)}, false}, {[]Entry{op(0, 1), op(1, 3)}, false}, {[]Entry{op(0, 0), op(1, 3)}, true},
	} {
		b := &File{Processes: []Process{{Name: "rank 0", Ended: c.entries}}}
		var text strings.Builder
		if err := b.Print(&text); err != nil || strings.Contains(text.String(), "the order of operations of several groups is not known") != c.want {
			t.Errorf("%v: %s", err, &text)
		}
	}
}
