package collective

// allReduce runs a blocking direct allreduce on the caller's goroutine, with a reused Work: it
// needs no allocation, no channel and no end time. ok is false, before any effect, if the operation
// is not direct or not valid, or if other operations are in progress.
func (s *shmGroup) allReduce(g *Group, e element, x []byte, op ReduceOp) (ok bool, err error) {
	if op >= reductions || op == Mean && !e.float() {
		return false, nil
	}
	g.mu.Lock()
	if g.head != nil || g.fault.Load() != nil || g.closed || g.window.busy() || g.method(kindAllReduce, len(x)) != byDirect {
		g.mu.Unlock()
		return false, nil
	}
	w := s.quick
	w.kind, w.elem, w.op, w.x = kindAllReduce, e, op, x
	g.number(w, true)
	g.window.admit(w)
	g.mu.Unlock()
	if w.seq%lookEvery == 0 {
		err = w.aborted()
	}
	if err == nil {
		err = w.directAllReduce()
	}
	if err != nil {
		err = w.wrap(g.fail(w.wrap(err)))
	}
	w.err = err
	g.scribe.stop(w)
	g.mu.Lock()
	g.scribe.ended(w)
	w.x, w.err = nil, nil
	g.window.retire(w)
	g.hand()
	g.leave()
	g.mu.Unlock()
	return true, err
}

// lookEvery is the number of quick operations between checks whether the mesh was aborted: only
// long waits check, and quick operations may have none.
const lookEvery = 16
