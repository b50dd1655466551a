package doctor

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// The hidden command tells of its host, and answers until its input ends.
func TestAnswering(t *testing.T) {
	leakcheck.Check(t)
	in, say := io.Pipe()
	hear, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		cmd := Answering("1", func() string { return "127.0.0.1 1 127.0.0.1 22" })
		cmd.SetArgs(nil)
		cmd.SetIn(in)
		cmd.SetOut(out)
		cmd.SetContext(context.Background())
		ended <- cmd.Execute()
		_ = out.Close()
	}()
	p, err := probeHost("b", struct {
		io.Reader
		io.WriteCloser
	}{hear, say}, never)
	if err != nil {
		t.Fatal(err)
	}
	if p.Version != "1" || len(p.Hash) != 64 || len(p.Found) == 0 || !strings.HasPrefix(p.Plain, "127.0.0.1:") || !strings.HasPrefix(p.TLS, "127.0.0.1:") {
		t.Errorf("%+v", p.hostReport)
	}
	if err := say.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An end that hangs up is named by what was measured when it did.
func TestMeasureFaults(t *testing.T) {
	for until, want := range map[byte]string{echo: "small messages: ", take: "bytes to it: ", give: "bytes from it: "} {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			buf := make([]byte, piece)
			for {
				var head [5]byte
				if _, err := io.ReadFull(far, head[:]); err != nil || head[0] == until {
					return
				}
				if do(far, head[0], int(binary.BigEndian.Uint32(head[1:])), buf) != nil {
					return
				}
			}
		}()
		if _, err := measure(near); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", until, err, want)
		}
		_ = near.Close()
	}
}

// A rate is that of the link: one that takes a millisecond for each piece moves no more than that, and not much less.
func TestRate(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	pieces := 0
	got, err := rate(near, give, func(n int) error {
		pieces += n / piece
		time.Sleep(time.Duration(n/piece) * time.Millisecond)
		return nil
	})
	if most := float64(piece) / 1e-3; err != nil || got > most || got < most/20 {
		t.Errorf("%g bytes a second, %v, want at most %g", got, err, most)
	}
	if pieces == 0 || pieces*piece > 2*mostSent {
		t.Errorf("%d pieces were moved", pieces)
	}
}
