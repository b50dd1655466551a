package extenv

// torchrun's ranks have the variables that PyTorch calls env://, and so have the pods of PyTorchJob and of Volcano's pytorch
// plugin, each of which is one rank. The names are common ones: a single one of them is nobody's.
func torchrun(r *reader) (Assignment, bool) {
	there := 0
	for _, name := range []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"} {
		if r.has(name) {
			there++
		}
	}
	if there < 2 {
		return Assignment{}, false
	}
	p := Assignment{Launcher: "torchrun", Rank: r.number("RANK", 0), Size: r.number("WORLD_SIZE", 1)}
	agent := r.has("TORCHELASTIC_RUN_ID") // it listens at MASTER_PORT itself
	p.inner = agent
	if !agent {
		p.Launcher = "a launcher with torchrun's variables"
	}
	if r.has("LOCAL_WORLD_SIZE") || agent {
		r.local("LOCAL_RANK", "LOCAL_WORLD_SIZE", &p)
	}
	if p.OneHost() && !r.any("MASTER_ADDR", "MASTER_PORT") || p.Size == 1 {
		return p, true
	}
	above := 0
	if agent {
		above = 1
	}
	p.Address = r.address("MASTER_ADDR", "MASTER_PORT", above)
	p.Job = "torchrun " + r.quiet("TORCHELASTIC_RUN_ID") + " " + r.quiet("TORCHELASTIC_RESTART_COUNT") + " " + p.Address
	return p, true
}

// quiet returns a variable that is not worth telling of.
func (r *reader) quiet(name string) string {
	v, _ := r.host.Lookup(name)
	return v
}
