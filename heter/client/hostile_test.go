package client

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/heter"
	"github.com/ringo-ml/ringo/heter/message"
	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/wire"
)

// A trainer that breaks the protocol is told how, and ends the job by name: oversized micro-batches, those out of turn, for another
// step or uncounted, more than there are credits for, labels that there are not, and frames that are none.
func TestHostile(t *testing.T) {
	frame := func(r *rig, n int, number, step uint64, label int32) []byte {
		l := message.Layout{Cut: r.cut}
		m := &heter.Micro{}
		m.Size(r.cut, n)
		for _, x := range m.In {
			clear(x)
		}
		clear(m.Labels)
		m.Labels[0], m.Seed = label, 1
		b := make([]byte, l.There(n))
		must(r.t, l.Micro(b, m, number, step))
		return b
	}
	for want, attack := range map[string]func(r *rig, l *transport.Link) error{
		"one of 16384 samples, the most, has": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicro}, frame(r, 16385, 1, 1, 0), time.Second)
		},
		"of 3 samples has": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicro}, append(frame(r, 3, 1, 1, 0), 0), time.Second)
		},
		"micro-batch 2 where 1 must come": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicro}, frame(r, 3, 2, 1, 0), time.Second)
		},
		"is at step 1 and sends for step 2": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicro}, frame(r, 3, 1, 2, 0), time.Second)
		},
		"the end of step 1 after 4 micro-batches, 0 have come": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeEnd}, message.End{Step: 1, Attempt: 1, Count: 4}.Append(nil), time.Second)
		},
		"ends step 3 in attempt 1, it has ended 0": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeEnd}, message.End{Step: 3, Attempt: 1}.Append(nil), time.Second)
		},
		"micro-batch 1: sample 0 has label 5, and there are 2 classes": func(r *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeMicro}, frame(r, 3, 1, 1, 5), time.Second)
		},
		"a trainer does not send done frames": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeDone}, nil, time.Second)
		},
		"an ask for 5000 values from 0 on": func(_ *rig, l *transport.Link) error {
			return l.WriteFrame(wire.Header{Type: message.TypeAsk}, message.Ask{Step: 1, Count: 5000}.Append(nil), time.Second)
		},
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, 1, 1, nil)
			l, _, err := transport.Dial(context.Background(), r.config.Addrs[0], r.config.Ticket, transport.Hello{Version: "1", Purpose: transport.Heter, WorldSize: 1})
			must(t, err)
			defer l.Close()
			hello := message.Hello{Trainers: 1, Count: 1, Hash: r.cut.Hash}
			must(t, l.WriteFrame(wire.Header{Type: message.TypeHello}, hello.Append(nil), time.Second))
			must(t, attack(r, l))
			must(t, l.CloseWrite(time.Second, transport.ErrClosed)) // it has nothing more to say
			if err := <-r.ends[0]; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "heter-trainer 0: ") || !strings.Contains(err.Error(), "trainer 0") {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}
