package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// flagError returns an error of flag parsing with suggestions.
func flagError(cmd *cobra.Command, err error) error {
	hint := ""
	if given := givenFlag(err); given != "" {
		if meant := meantFlags(cmd, given); len(meant) > 0 {
			hint = " (did you mean --" + strings.Join(meant, " or --") + "?)"
		}
	}
	return cli.Usagef("%w%s; see `%s --help`", err, hint, cmd.CommandPath())
}

// givenFlag returns the name of an unknown flag, "" for other errors. -np is a name here, not two
// letters.
func givenFlag(err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	if letters := unknown.GetSpecifiedShortnames(); letters != "" {
		name, _, _ := strings.Cut(letters, "=")
		return name
	}
	return unknown.GetSpecifiedName()
}

// meantFlags returns the flags that a name may mean: equivalents of other tools, or else similar
// names.
func meantFlags(cmd *cobra.Command, given string) []string {
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	folded := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(given))
	var meant []string
	for _, ours := range elsewhere() {
		if slices.Contains(known, ours.flag) && slices.Contains(strings.Fields(ours.names), folded) {
			meant = append(meant, ours.flag)
		}
	}
	if len(meant) > 0 {
		return meant
	}
	if path := pathNear(cmd, given); path != "" {
		return []string{"set " + path}
	}
	if len(given) < 2 { // a letter resembles many flags
		return nil
	}
	return spelling.Near(given, known...)
}

// pathNear returns the path of a setting without a flag if given is the path's last part, or the
// group and the last part.
func pathNear(cmd *cobra.Command, given string) string {
	if cmd.Flags().Lookup("set") == nil {
		return ""
	}
	for _, r := range usualTable().Rows() {
		_, short, _ := strings.Cut(string(r.Path), ".")
		if r.Flag == "" && short != "" && (short == given || job.GroupOf(r.Path)+"-"+short == given) {
			return string(r.Path) + "=..."
		}
	}
	return ""
}

// calledElsewhere is a flag and its names in PyTorch's launcher and examples, Horovod, MPI, Slurm,
// DeepSpeed, Hugging Face and Paddle, without dashes and underscores.
type calledElsewhere struct{ flag, names string }

func elsewhere() []calledElsewhere {
	return []calledElsewhere{
		{"np", "c nproc numproc nprocs procs ntasks worldsize nprocpernode numprocs numprocesses numworkers nworkers trainers trainernum gpus numgpus ngpu nnodes nodes ranks"},
		{"hosts", "h host hostlist hostfile machinefile nodelist nodefile"},
		{"log-dir", "logdir redirects outputdir"},
		{"servers", "ps pservers numservers servernum numps nservers"},
		{"batch", "b bs bsz batchsize trainbatchsize microbatchsize perdevicetrainbatchsize perdevicebatchsize minibatch minibatchsize"},
		{"accumulate", "gradientaccumulationsteps accumulationsteps gradaccum gradaccumsteps batchesperallreduce backwardpassesperstep"},
		{"lr", "learningrate baselr initlr eta alpha"},
		{"lr-schedule", "lrsteps lrscheduler cosine milestones lrmilestones lrdecayepochs"},
		{"warmup", "warmupsteps warmupepochs numwarmupsteps lrwarmup lrwarmupepochs"},
		{"epochs", "e epoch nepochs numepochs maxepochs maxepoch numtrainepochs"},
		{"weight-decay", "wd l2"},
		{"clip-norm", "clip clipgrad clipgradnorm gradclip maxgradnorm gradientclipping"},
		{"optimizer", "o opt optim solver"},
		{"data", "d datadir datapath dataset dataroot traindata traindir inputdir"},
		{"train-file", "trainpath trainset traindatapath"},
		{"eval-file", "test testfile validfile validationfile devfile evalpath testpath valfile"},
		{"seed", "randomseed manualseed rngseed"},
		{"threads", "j t numthreads nthreads cpupernode cpuspertask ompnumthreads nprocperproc threadsperrank"},
		{"checkpoint", "save savedir savepath checkpointdir checkpointpath ckpt ckptdir outputdir modeldir savemodel"},
		{"resume", "load restore resumefromcheckpoint loadcheckpoint"},
		{"checkpoint-every", "saveevery savesteps saveinterval checkpointfreq saveperiod"},
		{"rendezvous", "masteraddr masterport rdzvendpoint initmethod disturl coordinator"},
		{"rank", "noderank machinerank localrank globalrank trainerid"},
		{"transport", "backend distbackend comm network"},
		{"strategy", "compression compressor fp16allreduce quantize sparsify"},
		{"spars", "sparsity density ratio compressratio compressionratio topkratio"},
		{"bucket-bytes", "bucketcapmb bucketsize fusionthreshold fusionthresholdmb reducebucketsize"},
		{"trace", "timeline timelinefilename profiledir"},
		{"tune", "autotune"},
		{"sync", "mode psmode consistency distmode"},
		{"timeout", "distributedtimeout ddptimeout"},
		{"join-timeout", "starttimeout jointimeout rdzvtimeout"},
		{"tensorboard", "tensorboarddir logdir tblogdir eventdir summarydir"},
		{"json", "log logfile logjson metricsfile output report"},
		{"image-size", "imgsize imgsz resize inputsize cropsize resolution"},
		{"partition", "sharding datapartition shard"},
		{"train-limit", "maxtrainsamples limittrain"},
		{"eval-limit", "maxevalsamples limiteval"},
		{"out", "o output outputdir outdir dest"},
	}
}
