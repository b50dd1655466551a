package main

// #include <stdlib.h>
// #include "border.h"
import "C"

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/bindings"
	"github.com/ringo-ml/ringo/transport"
)

// job is the object behind a ringo_job.
type job struct {
	*ringo.Job
	self, world cgo.Handle

	calls  sync.RWMutex // held by operations in progress, and by a free of their memory
	mu     sync.Mutex
	memory map[unsafe.Pointer][]byte // allocated by ringo_alloc; nil after borderLeave
	groups map[cgo.Handle]*group     // created by ringo_subgroup

	parts map[cgo.Handle]io.Closer // strategies and clients of tables; nil after borderLeave
}

// group is the object behind a ringo_group.
type group struct {
	job  *job
	self cgo.Handle
	*members
}

func (j *job) handle() *C.ringo_job     { return *(**C.ringo_job)(unsafe.Pointer(&j.self)) }
func (g *group) handle() *C.ringo_group { return *(**C.ringo_group)(unsafe.Pointer(&g.self)) }

// lookup finds a variable in C's current environment; Go's is a copy from the library's load.
func lookup(name string) (string, bool) {
	key := C.CString(name)
	defer C.free(unsafe.Pointer(key))
	value := C.getenv(key)
	return text(value), value != nil
}

func placeOf(o *C.ringo_options) bindings.Place {
	return bindings.Place{
		Size: int(o.size), Rank: int(o.rank), Rendezvous: text(o.rendezvous),
		Ticket: text(o.ticket), TicketFile: text(o.ticket_file),
		Transport: text(o.transport), Bind: text(o.bind), Algorithm: text(o.algorithm),
		Timeout: milliseconds(o.timeout_ms), JoinTimeout: milliseconds(o.join_timeout_ms),
	}
}

// milliseconds converts a time of C, limited to Go's longest.
func milliseconds(ms C.int64_t) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-1, min(int64(ms), most))) * time.Millisecond
}

// places are the places of this process by a launcher.
var places bindings.Places

//export borderJoin
func borderJoin(o *C.ringo_options, out **C.ringo_job, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	cfg, err := placeOf(o).Config(lookup)
	if err == nil && o.size == 0 {
		var next func(string) (string, bool)
		if next, err = places.Next(lookup); err == nil {
			cfg, err = placeOf(o).Config(next)
		}
	}
	if err != nil {
		return report(f, err)
	}
	joined, err := ringo.Join(context.Background(), cfg)
	if err != nil {
		return report(f, err)
	}
	j := &job{Job: joined, memory: map[unsafe.Pointer][]byte{}, groups: map[cgo.Handle]*group{}, parts: map[cgo.Handle]io.Closer{}}
	all := &group{job: j, members: joined.Group()}
	j.self, all.self = cgo.NewHandle(j), cgo.NewHandle(all)
	j.world = all.self
	*out = j.handle()
	return C.RINGO_OK
}

//export borderLeave
func borderLeave(h *C.ringo_job, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(j *job) error {
		j.mu.Lock()
		if j.memory == nil {
			j.mu.Unlock()
			return bindings.Misusef("the job was left already")
		}
		memory, groups, parts := j.memory, j.groups, j.parts
		j.memory, j.groups, j.parts = nil, nil, nil
		j.mu.Unlock()
		var err error
		for _, p := range parts {
			if t, ok := p.(*tables); ok {
				err = errors.Join(err, t.Close()) // while the servers are up
			}
		}
		err = errors.Join(err, j.Close())
		j.calls.Lock() // other threads' failing operations may have operands in this memory
		defer j.calls.Unlock()
		for p, shared := range memory {
			if shared == nil {
				C.free(p)
			}
		}
		for h := range groups {
			h.Delete()
		}
		for h, p := range parts {
			if _, ok := p.(*strategy); ok {
				err = errors.Join(err, p.Close())
			}
			h.Delete()
		}
		j.world.Delete()
		j.self.Delete()
		return err
	})
}

// closeWith registers a part of the job for borderLeave. If the job was left, closeWith closes and
// refuses the part.
func (j *job) closeWith(h cgo.Handle, part io.Closer) error {
	j.mu.Lock()
	if j.parts != nil {
		defer j.mu.Unlock()
		j.parts[h] = part
		return nil
	}
	j.mu.Unlock()
	h.Delete()
	_ = part.Close()
	return bindings.Misusef("the job was left")
}

// disown gives up the handle of a part that its owner closes. borderLeave gives up all remaining
// handles, and each handle is given up once.
func (j *job) disown(h cgo.Handle) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.parts == nil {
		return bindings.Misusef("the job was left")
	}
	if _, ours := j.parts[h]; !ours {
		return bindings.Misusef("a handle is not one that is open: it was closed")
	}
	delete(j.parts, h)
	h.Delete()
	return nil
}

//export borderFail
func borderFail(h *C.ringo_job, why *C.char, told *C.int, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(j *job) error {
		if err := j.Fail(errors.New(text(why))); told != nil && ringo.Reported(err) {
			*told = 1
		}
		return nil
	})
}

//export borderAsk
func borderAsk(h *C.ringo_job, what C.int, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	j, err := jobOf(h)
	if err != nil {
		return report(f, err)
	}
	switch what {
	case C.BORDER_RANK:
		return C.int(j.Rank())
	case C.BORDER_SIZE:
		return C.int(j.Size())
	case C.BORDER_LOCAL_RANK:
		return C.int(j.LocalRank())
	case C.BORDER_SERVERS:
		return C.int(j.ParameterServers())
	}
	return C.int(map[string]int{ringo.TransportTCP: 1, ringo.TransportSHM: 2}[j.Transport()])
}

//export borderTicket
func borderTicket(out *C.char, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	return report(f, write(out, 65, transport.NewTicket().String()))
}

//export borderAddress
func borderAddress(host, out *C.char, room C.size_t, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	l, err := net.Listen("tcp", net.JoinHostPort(text(host), "0"))
	if err != nil {
		return report(f, err)
	}
	addr := l.Addr().String()
	return report(f, errors.Join(l.Close(), write(out, room, addr)))
}
