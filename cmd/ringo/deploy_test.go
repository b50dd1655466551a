package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/job/jobfile"
	"github.com/ringo-ml/ringo/internal/launch/extenv"
	"github.com/ringo-ml/ringo/internal/setting"
)

// What the tests look at of deploy/'s objects. That all of them are what their projects take, deploy/check says, which decodes them
// strictly into those projects' types.
type (
	metadata struct{ Name string }
	headless struct {
		Selector map[string]string
	}
	podSpec struct {
		Subdomain  string
		Containers []struct {
			Args         []string
			VolumeMounts []struct {
				Name      string
				MountPath string `yaml:"mountPath"`
			} `yaml:"volumeMounts"`
		}
		Volumes []struct{ Name string }
	}
	jobSpec struct {
		Completions, Parallelism int
		Template                 struct{ Spec podSpec }
	}
	jobSet struct {
		ReplicatedJobs []struct {
			Name     string
			Replicas int
			Template struct{ Spec jobSpec }
		} `yaml:"replicatedJobs"`
	}
	trainingRuntime struct {
		Template struct{ Spec jobSet }
	}
	trainJob struct {
		Trainer struct {
			NumProcPerNode int `yaml:"numProcPerNode"`
			Args           []string
		}
	}
	object[S any] struct {
		Metadata metadata
		Spec     S
	}
)

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

const deploy = "../../deploy/"

// decode decodes a file into as many objects as it has.
func decode(t *testing.T, file string, into ...any) {
	t.Helper()
	f, err := os.Open(deploy + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
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

// checkPod wants each volume of a pod mounted once, and nothing else.
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
		delete(places, v.Name)
	}
	if len(places) > 0 {
		t.Errorf("no volumes for %v", places)
	}
}

// The commands of Kubernetes' files are ringo's, and their pods find rank 0.
func TestDeployOnKubernetes(t *testing.T) {
	var svc object[headless]
	var j object[jobSpec]
	decode(t, "job.yaml", &svc, &j)
	pod := j.Spec.Template.Spec
	if checkPod(t, pod); checkTrains(t, pod.Containers[0].Args, "np") != "4" || j.Spec.Completions != 4 || j.Spec.Parallelism != 4 {
		t.Errorf("%+v", j.Spec)
	}
	if pod.Subdomain != svc.Metadata.Name || svc.Spec.Selector["job-name"] != j.Metadata.Name {
		t.Errorf("%+v of %+v", pod.Subdomain, svc)
	}
	meets := func(host, domain, want string) {
		t.Helper()
		place, found, err := extenv.Find(extenv.Host{Lookup: func(name string) (string, bool) {
			return strings.Repeat("2", oneIf(name == "JOB_COMPLETION_INDEX")), true
		}, Hostname: host, Names: []string{host + "." + domain}})
		if !found || err != nil || place.Rank != 2 || place.Address != want {
			t.Errorf("%+v, %v, want %s", place, err, want)
		}
	}
	meets(j.Metadata.Name+"-2", pod.Subdomain+".default.svc", "mnist-0.mnist.default.svc:29500")

	var set object[jobSet]
	decode(t, "jobset.yaml", &set)
	r := set.Spec.ReplicatedJobs[0]
	if checkPod(t, r.Template.Spec.Template.Spec); checkTrains(t, r.Template.Spec.Template.Spec.Containers[0].Args, "resume") != "auto" || r.Replicas != 1 || r.Template.Spec.Completions != 4 {
		t.Errorf("%+v", set.Spec)
	}
	meets(set.Metadata.Name+"-"+r.Name+"-0-2", set.Metadata.Name+".default.svc", "mnist-ranks-0-0.mnist.default.svc:29500")

	var run object[trainingRuntime]
	var tj object[trainJob]
	decode(t, "trainjob.yaml", &run, &tj)
	if checkTrains(t, tj.Spec.Trainer.Args, "ticket-file") != "/run/ringo/ticket" || tj.Spec.Trainer.NumProcPerNode != 2 {
		t.Errorf("%+v", tj.Spec)
	}
	checkPod(t, run.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec)
}

// verified says what systemd's own check has to say of a unit, nothing where there is none. The unit is told of another program: it wants one that
// is there.
func verified(t *testing.T, unit string) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd-analyze: the unit is read by our own eyes alone")
		return ""
	}
	at := filepath.Join(t.TempDir(), "ringo-ps@.service")
	if err := os.WriteFile(at, []byte(strings.Replace(unit, "/usr/local/bin/ringo", os.Args[0], 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "verify", "--man=no", "--generators=no", at).CombinedOutput()
	if err != nil {
		return err.Error() + ": " + string(out)
	}
	return string(out)
}

// directives are the options of sbatch that the script uses, with what each takes (sbatch(1)).
var directives = map[string]string{
	"job-name": `\w+`, "nodes": `\d+`, "ntasks-per-node": `\d+`, "cpus-per-task": `\d+`, "time": `(\d+-)?\d+(:\d\d){1,2}`, "requeue": "", "open-mode": "append|truncate",
	"signal": `(B:|R:)*[A-Z0-9]+(@\d+)?`,
}

// checkDirectives wants directives of sbatch, before anything else of the script.
func checkDirectives(t *testing.T, script string) {
	t.Helper()
	seen, over := map[string]bool{}, false
	for i, line := range strings.Split(script, "\n")[1:] {
		text, is := strings.CutPrefix(line, "#SBATCH --")
		if over = over || line != "" && line[0] != '#'; !is {
			continue
		}
		name, value, _ := strings.Cut(text, "=")
		if form, known := directives[name]; !known || seen[name] || over || !regexp.MustCompile("^("+form+")$").MatchString(value) {
			t.Errorf("line %d: sbatch does not take %q here", i+2, line)
		}
		seen[name] = true
	}
	if len(seen) != len(directives) {
		t.Errorf("only %v are there", seen)
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
	checkDirectives(t, read("ringo.sbatch"))
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
	if said := verified(t, unit); said != "" {
		t.Error(said)
	}
	given, err := jobfile.Read("ps.yaml", strings.NewReader(read("ps.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 4 {
		s, _, err := job.New(append(given, setting.Assignment{Path: "job.rank", Text: strconv.Itoa(rank)})...)
		if err = errors.Join(err, s.Validate()); err != nil || s.Servers.Count != 2 {
			t.Errorf("ps.yaml as rank %d: %+v, %v", rank, s, err)
		}
	}
	if _, image, ok := strings.Cut(read("Containerfile"), "\nFROM scratch\n"); !ok || strings.Count(image, "COPY ") != 2 || !strings.Contains(image, `ENTRYPOINT ["/ringo"]`) {
		t.Error("the image is not one binary alone")
	}
}
