package blackbox

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// scene is a rank that records.
type scene struct {
	rec *record.Recorder
	how string
}

// operation begins operation seq of group 0, of size bytes, in a bucket.
func (s scene) operation(seq uint32, size int64) record.Op {
	return s.rec.Begin(&record.Event{
		Kind: record.Operation, Name: s.rec.Name("allreduce"), Algorithm: s.rec.Name("ring"), Seq: seq, Size: size, Sig: uint64(size), Other: -1, Peer: -1, Sent: -1,
		Bucket: 3, Label: s.rec.Name("bucket 3 (fc.bias)"), Begun: s.rec.Now(),
	})
}

// done ends operations up to, and without, seq.
func (s scene) done(to uint32) {
	for seq := range to {
		s.operation(seq, 8).End(s.rec.Now(), 4, false)
	}
}

// boxOf merges what ranks do in a scene.
func boxOf(n int, play func(rank int, s *scene)) *File {
	b := &File{Why: "rank 1 is lost", Written: time.Now()}
	for rank := range n {
		s := &scene{rec: record.New(record.Config{})}
		s.rec.BeginStep(12)
		play(rank, s)
		b.Add(Process{Name: fmt.Sprintf("rank %d", rank), Rank: rank, ExitStatus: s.how}, s.rec.Snapshot())
	}
	return b
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		play func(rank int, s *scene)
		want string
	}{
		{"all is well", 2, func(_ int, s *scene) { s.done(9) }, "<nil>"},
		{"killed while it computes", 3, func(rank int, s *scene) {
			s.done(7)
			if rank == 1 {
				s.rec.Begin(&record.Event{Kind: record.PhaseKind, Phase: record.Backward, Begun: 1})
				s.how = "killed by signal 9 (SIGKILL)"
				return
			}
			s.operation(7, 8).Wait().For(1, s.rec.Now())
			s.operation(8, 8)
		}, "operation 7 (allreduce of 8 bytes by ring), bucket 3 (fc.bias), in step 13: rank 1 had not begun it (in backward of step 13, killed by signal 9 (SIGKILL)); rank 0 waited for rank 1; rank 2 waited for rank 1"},
		{"killed in an operation", 3, func(rank int, s *scene) {
			s.done(2)
			op := s.operation(2, 8)
			switch rank {
			case 0:
				op.Wait().For(2, 1)
				op.End(5, 4, true) // with the fault that follows
			case 1:
				s.how = "killed by signal 9 (SIGKILL)"
			case 2:
				op.End(5, 4, false)
			}
		}, "operation 2 (allreduce of 8 bytes by ring), bucket 3 (fc.bias), in step 13: rank 1 was in it (killed by signal 9 (SIGKILL)); rank 0 was in it; rank 2 had ended it"},
		{"cut off behind an operation", 3, func(rank int, s *scene) {
			s.done(2)
			op := s.operation(2, 8)
			if rank == 1 { // for its part it has ended
				op.End(5, 4, false)
				s.operation(3, 8).End(6, 4, true)
				return
			}
			op.Wait().For(1-rank/2, 1) // 0 for 1, and 2 for 0
			op.End(5, 4, true)
		}, "operation 2 (allreduce of 8 bytes by ring), bucket 3 (fc.bias), in step 13: rank 2 waited for rank 0; rank 0 waited for rank 1, whose last messages were lost; rank 1 had ended it"},
		{"cut off in a message behind an operation", 3, func(rank int, s *scene) {
			s.done(3)
			if rank == 0 { // its part of the exchange has ended
				op := s.operation(3, 8)
				op.Wait().For(1, 6)
				op.End(7, 4, true)
				return
			}
			m := s.rec.Begin(&record.Event{Kind: record.Message, Name: s.rec.Name("receive"), Seq: 2, Size: 20, Other: int32(3 - rank), Peer: -1, Sent: -1, Bucket: -1, Begun: 5})
			m.Wait().For(3-rank, 5)
			m.End(6, 4, true)
		}, "operation 2 (allreduce of 8 bytes by ring, then receive of 20 bytes), bucket 3 (fc.bias), in step 13: rank 1 waited for rank 2; rank 2 waited for rank 1; rank 0 had ended it"},
		{"all in messages behind the last operation", 2, func(rank int, s *scene) {
			s.done(3)
			m := s.rec.Begin(&record.Event{Kind: record.Message, Name: s.rec.Name("receive"), Seq: 2, Size: 20, Other: int32(1 - rank), Peer: -1, Sent: -1, Bucket: -1, Begun: 5})
			m.Wait().For(1-rank, 5)
		}, "operation 2 (allreduce of 8 bytes by ring, then receive of 20 bytes), bucket 3 (fc.bias), in step 13: rank 0 waited for rank 1; rank 1 waited for rank 0"},
		{"one is missing that was in no message", 3, func(rank int, s *scene) {
			s.done(3)
			switch rank {
			case 0:
				s.operation(3, 8).Wait().For(2, s.rec.Now())
			case 1:
				m := s.rec.Begin(&record.Event{Kind: record.Message, Name: s.rec.Name("receive"), Seq: 2, Size: 20, Other: 0, Peer: -1, Sent: -1, Bucket: -1, Begun: 5})
				m.Wait().For(0, 5)
			}
		}, "operation 3 (allreduce of 8 bytes by ring), bucket 3 (fc.bias), in step 13: rank 1 had not begun it; rank 2 had not begun it; rank 0 waited for rank 2"},
		{"they differ", 2, func(rank int, s *scene) {
			s.done(4)
			s.operation(4, int64(8+rank)).Wait().For(1-rank, 1)
		}, "operation 4, bucket 3 (fc.bias), in step 13: rank 0 began allreduce of 8 bytes by ring; rank 1 began allreduce of 9 bytes by ring; rank 0 waited for rank 1; rank 1 waited for rank 0"},
		{"dead before its first", 2, func(rank int, s *scene) {
			if rank == 0 {
				s.operation(0, 8).Wait().For(1, 1)
			}
		}, "operation 0 (allreduce of 8 bytes by ring), bucket 3 (fc.bias), in step 13: rank 1 had not begun it; rank 0 waited for rank 1"},
		{"lost behind an operation, and one that failed because of it kept its last messages", 4, func(rank int, s *scene) {
			s.done(15)
			found := func(seq uint32, lost int32) {
				s.rec.Add(&record.Event{Kind: record.Fault, Name: s.rec.Name("a rank is lost"), Seq: seq, Bucket: -1, Other: lost, Peer: -1, Begun: 9, Done: 9})
			}
			op := s.operation(15, 8)
			if rank == 1 {
				op.Wait().For(3, 1)
				op.End(5, 4, true)
				found(15, 0)
				return
			}
			op.End(5, 4, false)
			op = s.operation(16, 8)
			op.Wait().For([]int{1, 0, 0, 1}[rank], 1)
			op.End(5, 4, true)
			found(16, 0)
		}, "operation 15 (allreduce of 8 bytes by ring), bucket 3 (fc.bias), in step 13: rank 1 waited for rank 3, whose last messages were lost; rank 0, rank 2, rank 3 had ended it; rank 0 was lost, as rank 1, rank 2, rank 3 found"},
		{"one that never ends, long ago", 2, func(rank int, s *scene) {
			op := s.operation(0, 8)
			for seq := range uint32(3000) {
				s.operation(seq+1, 8).End(s.rec.Now(), 4, false)
			}
			if rank == 1 {
				op.End(s.rec.Now(), 4, false)
			} else {
				op.Wait().For(1, 1)
			}
			s.operation(3001, 8)
		}, "operation 0 (allreduce of 8 bytes by ring), bucket 3 (fc.bias), in step 13: rank 0 was in it; rank 1 had ended it"},
	} {
		b := boxOf(c.n, c.play)
		if f := b.Find(); fmt.Sprint(f) != c.want && !(f == nil && c.want == "<nil>") {
			t.Errorf("%s:\n got %v\nwant %s", c.name, f, c.want)
		}
		var file, text bytes.Buffer
		if err := b.Write(&file); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&file)
		if err != nil {
			t.Fatal(err)
		}
		b.Written, again.Written = time.Time{}, time.Time{}
		if !reflect.DeepEqual(b, again) {
			t.Errorf("%s: what was read differs from what was written", c.name)
		}
		if err := again.Print(&text); err != nil || c.want != "<nil>" && !strings.Contains(text.String(), c.want) {
			t.Errorf("%s: %v, printed\n%s", c.name, err, text.String())
		}
	}
}

// Who is lost by the launcher's word is told where the finding is about others, and ranks are not asked.
func TestLost(t *testing.T) {
	play := func(rank int, s *scene) {
		s.done(3)
		op := s.operation(3, 8)
		if rank != 1 {
			op.End(5, 4, false)
			s.rec.Add(&record.Event{Kind: record.Fault, Name: s.rec.Name("rank 2 is lost"), Seq: 3, Bucket: -1, Other: 2, Peer: 1, Begun: 6, Done: 6})
			return
		}
		op.Wait().For(2, 1)
		op.End(5, 4, true)
	}
	for lost, want := range []string{
		"rank 1 waited for rank 2, whose last messages were lost; rank 0, rank 2 had ended it; rank 0 was lost",
		"rank 1 waited for rank 2, whose last messages were lost; rank 0, rank 2 had ended it",
		"rank 1 waited for rank 2, whose last messages were lost; rank 0, rank 2 had ended it",
	} {
		b := boxOf(3, play)
		b.Processes[lost].Lost = true
		if f := b.Find(); !strings.HasSuffix(fmt.Sprint(f), "in step 13: "+want) {
			t.Errorf("rank %d lost: got %v\nwant %s", lost, f, want)
		}
	}
}

// Faults and changes are told by their words.
func TestPrintedFault(t *testing.T) {
	b := boxOf(1, func(_ int, s *scene) {
		s.rec.Add(&record.Event{Kind: record.Fault, Name: s.rec.Name("rank 1 is lost"), Seq: 7, Bucket: -1, Other: -1, Peer: 1, Begun: 1, Done: 1})
		s.rec.Add(&record.Event{Kind: record.Change, Name: s.rec.Name("another plan"), Bucket: -1, Other: -1, Peer: -1, Begun: 2, Done: 2})
	})
	var text bytes.Buffer
	if err := b.Print(&text); err != nil || !strings.Contains(text.String(), " ago  fault: rank 1 is lost\n") || !strings.Contains(text.String(), " ago  change: another plan\n") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// Operations stand in their order, whoever knows when they began, and what is none among them by its time.
func TestOrder(t *testing.T) {
	op := func(group, seq uint32, begun int64) Entry {
		return Entry{Kind: "operation", Group: group, Seq: seq, Begun: begun}
	}
	fault := Entry{Kind: "fault", Begun: 25}
	got := inOrder([]Entry{op(0, 2, 20), op(0, 5, 30), fault, op(0, 1, 0), op(0, 3, 0), op(0, 4, 0), op(1, 0, 22), op(1, 1, 0)})
	want := []Entry{op(0, 1, 0), op(0, 2, 20), op(0, 3, 0), op(0, 4, 0), op(1, 0, 22), op(1, 1, 0), fault, op(0, 5, 30)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// Of a rank whose operations were overwritten those are not missing that came before its last one.
func TestOverwritten(t *testing.T) {
	b := boxOf(2, func(rank int, s *scene) {
		lane := s.rec.Lane(new(sync.Mutex))
		for seq := range uint32(5000) {
			e := record.Event{Kind: record.Operation, Name: s.rec.Name("barrier"), Seq: seq, Bucket: -1, Other: -1, Peer: -1, Sent: -1}
			d := e.Draft()
			if op := lane.Begin(&d); rank == 0 || seq < 4999 {
				op.End(record.Unknown, -1, false)
			}
			if rank == 0 && seq == 4000 {
				break
			}
		}
	})
	const want = "operation 4001 (barrier), in step 13: rank 0 had not begun it; rank 1 had ended it"
	if got := b.Find().String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Of whom nothing, or not all, is known nothing is said to be missing.
func TestUnknown(t *testing.T) {
	play := func(_ int, s *scene) { s.done(3) }
	b := boxOf(1, play)
	b.Add(Process{Name: "rank 1", Rank: 1, Silent: "its memory cannot be read"}, nil)
	if f := b.Find(); f != nil {
		t.Errorf("a rank of which nothing is known: %v", f)
	}
	b = boxOf(2, play)
	b.Processes[1].Ended = b.Processes[1].Ended[:1]
	if f := b.Find(); f == nil || f.Seq != 1 {
		t.Errorf("a rank without the last two: %v", f)
	}
	b.Processes[1].Unseen = 2
	if f := b.Find(); f != nil {
		t.Errorf("a rank that had no room to record: %v", f)
	}
}

// Who has recorded nothing is in the box, and says so.
func TestSilentProcess(t *testing.T) {
	b := boxOf(1, func(_ int, s *scene) { s.done(1) })
	b.Add(Process{Name: "parameter server 0", Rank: -1}, nil)
	var text bytes.Buffer
	if err := b.Print(&text); err != nil || !strings.Contains(text.String(), "parameter server 0\n  it recorded nothing\n") {
		t.Errorf("%v: %s", err, text.String())
	}
	if f := b.Find(); f != nil {
		t.Errorf("it shows %v", f)
	}
	b.Add(Process{Name: "rank 1", Rank: 1, Serves: true}, nil) // it sums: its rank is behind those that train
	if f := b.Find(); f != nil {
		t.Errorf("a server misses an operation of ranks: %v", f)
	}
}

func TestDamagedFile(t *testing.T) {
	for want, text := range map[string]string{
		"at byte":    `{"format":`,
		`is "other"`: `{"format":"other","version":1}`,
		"version 2":  `{"format":"ringo-blackbox","version":2}`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// Whatever a file holds, it is read, searched and printed without a panic.
func FuzzRead(f *testing.F) {
	var file bytes.Buffer
	b := boxOf(2, func(rank int, s *scene) { s.done(2); s.operation(2, int64(rank)) })
	_ = b.Write(&file)
	f.Add(file.Bytes())
	f.Add([]byte(`{"format":"ringo-blackbox","version":1,"processes":[{"name":"rank 0","ended":[{"kind":"operation","seq":4294967295}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		if f := b.Find(); f != nil && f.String() == "" {
			t.Error("a finding that says nothing")
		}
		_ = b.Print(new(bytes.Buffer))
	})
}
