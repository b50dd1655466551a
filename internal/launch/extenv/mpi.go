package extenv

import "strconv"

// mpi reads the place of a process started by mpirun of Open MPI or MPICH. If one runs inside the
// other, both have set variables, and the one with a single process is outer.
func mpi(r *reader) (Assignment, bool) {
	const ompiRank, ompiSize, pmiRank, pmiSize = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"
	open, other := r.any(ompiRank, ompiSize), r.any(pmiRank, pmiSize)
	switch {
	case open && other && r.quiet(ompiSize) != "1" && r.quiet(pmiSize) != "1":
		p := openMPI(r)
		r.same(ompiSize, r.quiet(ompiSize), pmiSize, r.quiet(pmiSize))
		r.same(ompiRank, r.quiet(ompiRank), pmiRank, r.quiet(pmiRank))
		return p, true
	case open && (!other || r.quiet(ompiSize) != "1"):
		return openMPI(r), true
	case !other || slurmsOwn(r):
		return Assignment{}, false
	}
	p := Assignment{Launcher: "mpirun of MPICH", Rank: r.number(pmiRank, 0), Size: r.number(pmiSize, 1), Parent: "hydra_pmi_proxy"}
	r.local("MPI_LOCALRANKID", "MPI_LOCALNRANKS", &p)
	return p, true
}

func openMPI(r *reader) Assignment {
	p := Assignment{Launcher: "mpirun of Open MPI", Rank: r.number("OMPI_COMM_WORLD_RANK", 0), Size: r.number("OMPI_COMM_WORLD_SIZE", 1)}
	r.local("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", &p)
	for _, name := range []string{"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess_base_jobid"} {
		if p.Job = r.quiet(name); p.Job != "" {
			p.Job = "mpirun " + p.Job
			return p
		}
	}
	p.Parent = "mpirun"
	return p
}

// slurmsOwn reports whether srun --mpi=pmi2, not MPICH, has set PMI's variables.
func slurmsOwn(r *reader) bool {
	return inStep(r) && r.quiet("PMI_RANK") == r.quiet("SLURM_PROCID") && !r.has("MPI_LOCALRANKID")
}

// pmix reads PMIx's variables alone, as set by prun, without a world size.
func pmix(r *reader) (Assignment, bool) {
	if !r.has("PMIX_RANK") {
		return Assignment{}, false
	}
	p := Assignment{Launcher: "a launcher with PMIx's variables", Rank: r.number("PMIX_RANK", 0), Job: "pmix " + r.quiet("PMIX_NAMESPACE")}
	if p.Rank == 0 && !r.has("PMIX_NAMESPACE") {
		p.Size = 1 // variables inherited from another program
	}
	return p, true
}

// paddle reads Paddle's variables, including the listen addresses of all trainers.
func paddle(r *reader) (Assignment, bool) {
	if !r.any("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM") {
		return Assignment{}, false
	}
	p := Assignment{Launcher: "a launcher with Paddle's variables"}
	if role := r.optional("TRAINING_ROLE"); role != "" && role != "TRAINER" {
		r.fail("TRAINING_ROLE=%s is no rank that trains: start `ringo server --index N` there, with the addresses of all servers", role)
		return p, true
	}
	p.Rank, p.Size = r.number("PADDLE_TRAINER_ID", 0), r.number("PADDLE_TRAINERS_NUM", 1)
	if all := words(r.optional("PADDLE_TRAINER_ENDPOINTS")); len(all) > 0 {
		r.same("PADDLE_TRAINERS_NUM", strconv.Itoa(p.Size), "the number of PADDLE_TRAINER_ENDPOINTS", strconv.Itoa(len(all)))
		p.Address, p.Job = all[0], "paddle "+all[0]
		if mine := r.quiet("PADDLE_CURRENT_ENDPOINT"); mine != "" && p.Rank < len(all) {
			r.same("PADDLE_CURRENT_ENDPOINT", mine, "place "+strconv.Itoa(p.Rank)+" of PADDLE_TRAINER_ENDPOINTS", all[p.Rank])
		}
	} else if p.Size > 1 {
		r.fail("PADDLE_TRAINER_ENDPOINTS is not set")
	}
	return p, true
}
