package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ringo-ml/ringo/launch/outer"
)

// The fields of Kubernetes' objects that deploy/ uses, by their published names and places: what is misspelt or misplaced does not decode.
// Their Go types would bring more modules than ringo has.
type (
	metadata struct {
		Name   string
		Labels map[string]string
	}
	headless struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]string
	}
	mount struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	}
	container struct {
		Name, Image   string
		Command, Args []string
		Resources     struct{ Requests, Limits map[string]string }
		VolumeMounts  []mount `yaml:"volumeMounts"`
	}
	volume struct {
		Name   string
		Secret *struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
		PersistentVolumeClaim *struct {
			ClaimName string `yaml:"claimName"`
		} `yaml:"persistentVolumeClaim"`
		EmptyDir *struct {
			Medium    string
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}
	podSpec struct {
		Subdomain                     string
		RestartPolicy                 string `yaml:"restartPolicy"`
		TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			FSGroup int `yaml:"fsGroup"`
		} `yaml:"securityContext"`
		Containers []container
		Volumes    []volume
	}
	jobSpec struct {
		CompletionMode   string `yaml:"completionMode"`
		Completions      int
		Parallelism      int
		BackoffLimit     int `yaml:"backoffLimit"`
		PodFailurePolicy struct {
			Rules []struct {
				Action          string
				OnPodConditions []struct{ Type, Status string } `yaml:"onPodConditions"`
			}
		} `yaml:"podFailurePolicy"`
		Template struct{ Spec podSpec }
	}
	replicatedJob struct {
		Name     string
		Replicas int
		Template struct {
			Metadata metadata
			Spec     jobSpec
		}
	}
	jobSet struct {
		Network struct {
			EnableDNSHostnames       bool `yaml:"enableDNSHostnames"`
			PublishNotReadyAddresses bool `yaml:"publishNotReadyAddresses"`
		}
		FailurePolicy struct {
			MaxRestarts int `yaml:"maxRestarts"`
		} `yaml:"failurePolicy"`
		ReplicatedJobs []replicatedJob `yaml:"replicatedJobs"`
	}
	trainingRuntime struct {
		MLPolicy struct {
			NumNodes int `yaml:"numNodes"`
			Torch    struct {
				NumProcPerNode int `yaml:"numProcPerNode"`
			}
		} `yaml:"mlPolicy"`
		Template struct{ Spec jobSet }
	}
	trainJob struct {
		RuntimeRef struct {
			APIGroup   string `yaml:"apiGroup"`
			Kind, Name string
		} `yaml:"runtimeRef"`
		Trainer struct {
			NumNodes int `yaml:"numNodes"`
			Args     []string
		}
	}
	object[S any] struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       S
	}
)

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

const deploy = "../../deploy/"

// decodeStrictly decodes a file strictly into as many objects as it has.
func decodeStrictly(t *testing.T, file string, into ...any) {
	t.Helper()
	f, err := os.Open(deploy + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	for _, o := range into {
		if err := d.Decode(o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Errorf("%s has more documents than %d: %v", file, len(into), err)
	}
}

// checkTrains wants words that `ringo train` takes, and returns the value of a flag.
func checkTrains(t *testing.T, words []string, flag string) string {
	t.Helper()
	train := newTrain()
	if len(words) < 2 || words[0] != "train" || train.ParseFlags(words[1:]) != nil || len(train.Flags().Args()) != 1 {
		t.Fatalf("ringo takes no %q", words)
	}
	return train.Flags().Lookup(flag).Value.String()
}

// checkPod wants a pod that finds its ticket, and has time to save.
func checkPod(t *testing.T, p podSpec) {
	t.Helper()
	places := map[string]string{}
	for _, m := range p.Containers[0].VolumeMounts {
		places[m.Name] = m.MountPath
	}
	for _, v := range p.Volumes {
		if places[v.Name] == "" {
			t.Errorf("volume %s is mounted nowhere", v.Name)
		}
		if delete(places, v.Name); v.Secret != nil && (v.Secret.DefaultMode != 0o440 || p.SecurityContext.FSGroup == 0) {
			t.Errorf("the ticket has mode %o, group %d: it would be refused, or not readable", v.Secret.DefaultMode, p.SecurityContext.FSGroup)
		}
	}
	if len(places) > 0 || p.TerminationGracePeriodSeconds < 30 {
		t.Errorf("no volumes for %v, or %d s to save", places, p.TerminationGracePeriodSeconds)
	}
}

// Kubernetes' files decode strictly, their commands are ringo's, and their pods find rank 0.
func TestDeployOnKubernetes(t *testing.T) {
	var svc object[headless]
	var j object[jobSpec]
	decodeStrictly(t, "job.yaml", &svc, &j)
	pod := j.Spec.Template.Spec
	if checkPod(t, pod); checkTrains(t, pod.Containers[0].Args, "np") != "4" || j.Spec.Completions != 4 || j.Spec.Parallelism != 4 || j.Spec.CompletionMode != "Indexed" {
		t.Errorf("%+v", j.Spec)
	}
	if pod.Subdomain != svc.Metadata.Name || svc.Spec.ClusterIP != "None" || svc.Spec.Selector["job-name"] != j.Metadata.Name || j.APIVersion != "batch/v1" {
		t.Errorf("%+v of %+v", pod.Subdomain, svc)
	}
	meets := func(host, domain, want string) {
		t.Helper()
		place, found, err := outer.Find(outer.Host{Lookup: func(name string) (string, bool) {
			return strings.Repeat("2", oneIf(name == "JOB_COMPLETION_INDEX")), true
		}, Hostname: host, Names: []string{host + "." + domain}})
		if !found || err != nil || place.Rank != 2 || place.Address != want {
			t.Errorf("%+v, %v, want %s", place, err, want)
		}
	}
	meets(j.Metadata.Name+"-2", pod.Subdomain+".default.svc", "mnist-0.mnist.default.svc:29500")

	var set object[jobSet]
	decodeStrictly(t, "jobset.yaml", &set)
	r := set.Spec.ReplicatedJobs[0]
	if checkPod(t, r.Template.Spec.Template.Spec); checkTrains(t, r.Template.Spec.Template.Spec.Containers[0].Args, "resume") != "auto" || r.Replicas != 1 || r.Template.Spec.Completions != 4 || !set.Spec.Network.EnableDNSHostnames {
		t.Errorf("%+v", set.Spec)
	}
	meets(set.Metadata.Name+"-"+r.Name+"-0-2", set.Metadata.Name+".default.svc", "mnist-ranks-0-0.mnist.default.svc:29500")

	var run object[trainingRuntime]
	var tj object[trainJob]
	decodeStrictly(t, "trainjob.yaml", &run, &tj)
	if checkTrains(t, tj.Spec.Trainer.Args, "ticket-file") != "/run/ringo/ticket" || tj.Spec.RuntimeRef.Name != run.Metadata.Name || tj.Spec.RuntimeRef.Kind != run.Kind || run.Spec.MLPolicy.Torch.NumProcPerNode != 2 {
		t.Errorf("%+v, %+v", tj.Spec, run.Spec.MLPolicy)
	}
	node := run.Spec.Template.Spec.ReplicatedJobs[0]
	if checkPod(t, node.Template.Spec.Template.Spec); node.Name != "node" || node.Template.Metadata.Labels["trainer.kubeflow.org/trainjob-ancestor-step"] != "trainer" {
		t.Errorf("%+v", node)
	}
}

// The script of Slurm is bash, and starts what ringo takes; so does the unit of systemd, and the image is empty but for the binary.
func TestDeployElsewhere(t *testing.T) {
	read := func(file string) string {
		b, err := os.ReadFile(deploy + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if out, err := exec.Command("bash", "-n", filepath.FromSlash(deploy+"ringo.sbatch")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	_, line, _ := strings.Cut(strings.ReplaceAll(read("ringo.sbatch"), "\\\n", ""), "ringo train ")
	checkTrains(t, append([]string{"train"}, strings.Fields(strings.ReplaceAll(line, `"$SLURM_CPUS_PER_TASK"`, "4"))...), "threads")

	unit := read("ringo-ps@.service")
	start := regexp.MustCompile(`(?m)^ExecStart=\S+/ringo server (.*)$`).FindStringSubmatch(unit)
	if server := newServer(); start == nil || server.ParseFlags(strings.Fields(strings.ReplaceAll(start[1], "%i", "1"))) != nil {
		t.Errorf("ringo takes no %q", start)
	}
	for i, l := range strings.Split(unit, "\n") {
		if l != "" && !regexp.MustCompile(`^(#.*|\[(Unit|Service|Install)\]|[A-Z][A-Za-z]+=.+)$`).MatchString(l) {
			t.Errorf("line %d is none of a unit: %q", i+1, l)
		}
	}
	if _, image, ok := strings.Cut(read("Containerfile"), "\nFROM scratch\n"); !ok || strings.Count(image, "COPY ") != 2 || !strings.Contains(image, `ENTRYPOINT ["/ringo"]`) {
		t.Error("the image is not one binary alone")
	}
}
