package main

// #include "border.h"
import "C"

import (
	"runtime/cgo"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bindings"
)

// members is group's embedded collective.Group.
type members = collective.Group

//export borderWorld
func borderWorld(h *C.ringo_job, out **C.ringo_group, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(j *job) error {
		all, err := objectOf[group](uintptr(j.world))
		if err == nil {
			*out = all.handle()
		}
		return err
	})
}

//export borderSubgroup
func borderSubgroup(h *C.ringo_job, ranks *C.int, n C.size_t, out **C.ringo_group, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(j *job) error {
		if n > C.size_t(j.Size()) {
			return bindings.Misusef("a group of %d ranks: the job has %d", n, j.Size())
		}
		var list []int
		for _, r := range unsafe.Slice(ranks, n) {
			list = append(list, int(r))
		}
		sub, err := j.Subgroup(list...)
		if err != nil {
			return wrong(j.Err(err))
		}
		g := &group{job: j, members: sub}
		g.self = cgo.NewHandle(g)
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.groups == nil { // Leave has closed the group already
			g.self.Delete()
			return bindings.Misusef("the job was left")
		}
		j.groups[g.self] = g
		*out = g.handle()
		return nil
	})
}

//export borderCloseGroup
func borderCloseGroup(h *C.ringo_group, f *C.border_fault) C.int {
	return on(uintptr(unsafe.Pointer(h)), f, func(g *group) error {
		g.job.mu.Lock()
		_, ours := g.job.groups[g.self]
		delete(g.job.groups, g.self)
		g.job.mu.Unlock()
		if !ours {
			return bindings.Misusef("this group is not to be closed: it is the job's own, or was closed")
		}
		err := g.Close()
		g.self.Delete()
		return err
	})
}

//export borderAskGroup
func borderAskGroup(h *C.ringo_group, what C.int, f *C.border_fault) (code C.int) {
	defer guard(f, &code)
	g, err := groupOf(h)
	if err != nil {
		return report(f, err)
	}
	switch what {
	case C.BORDER_RANK:
		return C.int(g.Rank())
	case C.BORDER_ALGORITHM:
		return C.int(1 + slices.Index(collective.Algorithms(), g.Algorithm()))
	}
	return C.int(g.Size())
}
