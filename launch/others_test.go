package launch

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// What other launchers say of several processes is an error; of one process, or for a
// batch script, of which there is one, it is none.
func TestStartedByAnotherLauncher(t *testing.T) {
	for env, want := range map[string]string{
		"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0": "OMPI_COMM_WORLD_SIZE=2: mpirun has started this program as 2 processes",
		"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0": "",
		"PMI_SIZE=4 PMI_RANK=3": "PMI_SIZE=4: mpirun",
		"PMI_SIZE=1 PMI_RANK=0": "",
		"PMIX_RANK=0":           "",
		"PMIX_RANK=3":           "PMIX_RANK=3: prun has started this program as 4 processes",
		"SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_JOB_ID=7":                         "", // sbatch's own script
		"SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=8":                 "",
		"SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_ID=0": "SLURM_STEP_NUM_TASKS=8: srun",
		"SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0": "",
		"WORLD_SIZE=2 RANK=1":   "WORLD_SIZE=2: torchrun",
		"WORLD_SIZE=1 RANK=0":   "",
		"WORLD_SIZE=2":          "", // of nobody who places processes
		"WORLD_SIZE=big RANK=0": "",
		"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PMI_SIZE=2 PMI_RANK=0":          "PMI_SIZE=2",
		"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 " + RankVar + "=0 RINGO_X=none": "RINGO_WORLD_SIZE is not set", // placed by us
	} {
		_, _, err := FromEnv(lookupIn(strings.Fields(env)))
		var other *OtherLauncherError
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%s: %v, want no error", env, err)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: error %v, want %q", env, err, want)
		case errors.As(err, &other) == strings.Contains(env, RankVar):
			t.Errorf("%s: error %T", env, err)
		}
	}
}

// A command comes out of a shell as it went in, also through two of them.
func TestQuote(t *testing.T) {
	words := []string{"printf", "%s|", "a b", "it's", "$HOME", "", `"\`, "plain"}
	for range 2 {
		out, err := exec.Command("sh", "-c", Quote(words)).Output()
		if want := `a b|it's|$HOME||"\|plain|`; err != nil || string(out) != want {
			t.Errorf("%q, %v, want %q", out, err, want)
		}
		words = []string{"sh", "-c", Quote(words)}
	}
}
