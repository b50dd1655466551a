package extenv

// torchrun reads PyTorch's env:// variables, which pods of PyTorchJob and of Volcano's pytorch
// plugin have as well, with one rank per pod. A single one of these common names is no evidence.
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
	agent := r.has("TORCHELASTIC_RUN_ID") // torchrun's agent itself listens at MASTER_PORT
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

// quiet returns a variable without recording it in used.
func (r *reader) quiet(name string) string {
	v, _ := r.host.Lookup(name)
	return v
}
