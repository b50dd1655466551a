// Package check decodes the ready files of deploy/ into the types of the projects that take them, which is no part of ringo: it is a module of its own.
package check

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"
)

// documents are those of a file.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(text, []byte("\n---\n"))
}

// decode decodes a file's documents, as many as into, strictly: a field that is misspelt, misplaced, twice there or of another kind fails.
func decode(t *testing.T, file string, into ...any) {
	t.Helper()
	all := documents(t, file)
	if len(all) != len(into) {
		t.Fatalf("%s: %d documents, want %d", file, len(all), len(into))
	}
	for i, text := range all {
		if err := yaml.UnmarshalStrict(text, into[i]); err != nil {
			t.Errorf("%s, document %d: %v", file, i+1, err)
		}
	}
}

// Kubernetes takes the indexed Job and its Service, JobSet's controller the JobSet, and Kubeflow Trainer the TrainJob with its runtime. What cmd/ringo
// wants of them beyond that its tests say.
func TestObjects(t *testing.T) {
	var svc core.Service
	var job batch.Job
	decode(t, "job.yaml", &svc, &job)
	if batch.SchemeGroupVersion.String() != job.APIVersion || job.Kind != "Job" || *job.Spec.CompletionMode != batch.IndexedCompletion || *job.Spec.Completions != *job.Spec.Parallelism {
		t.Errorf("%s %s: %+v", job.APIVersion, job.Kind, job.Spec)
	}
	if core.SchemeGroupVersion.String() != svc.APIVersion || svc.Kind != "Service" || svc.Spec.ClusterIP != core.ClusterIPNone || !svc.Spec.PublishNotReadyAddresses || svc.Spec.Selector[batch.JobNameLabel] != job.Name && svc.Spec.Selector["job-name"] != job.Name {
		t.Errorf("%s %s: %+v", svc.APIVersion, svc.Kind, svc.Spec)
	}
	checkPod(t, "job.yaml", job.Spec.Template.Spec)
	for _, rule := range job.Spec.PodFailurePolicy.Rules {
		if e := rule.OnExitCodes; e != nil && *e.ContainerName != job.Spec.Template.Spec.Containers[0].Name {
			t.Errorf("job.yaml: exit codes of %s", *e.ContainerName)
		}
	}
	var claim core.PersistentVolumeClaim
	decode(t, "claim.yaml", &claim)
	if claim.Kind != "PersistentVolumeClaim" || !slices.Contains(claim.Spec.AccessModes, core.ReadWriteMany) {
		t.Errorf("%s: %+v", claim.Kind, claim.Spec)
	}

	var set jobset.JobSet
	decode(t, "jobset.yaml", &set)
	r := set.Spec.ReplicatedJobs[0]
	if jobset.SchemeGroupVersion.String() != set.APIVersion || set.Kind != "JobSet" || !*set.Spec.Network.EnableDNSHostnames || *r.Template.Spec.CompletionMode != batch.IndexedCompletion {
		t.Errorf("%s %s: %+v", set.APIVersion, set.Kind, set.Spec)
	}
	checkPod(t, "jobset.yaml", r.Template.Spec.Template.Spec)
	checkPreemption(t, "jobset.yaml", r.Template.Spec, batch.PodFailurePolicyActionFailJob)
	checkPreemption(t, "job.yaml", job.Spec, batch.PodFailurePolicyActionIgnore)
	if f := set.Spec.FailurePolicy; f == nil || f.MaxRestarts < 1 || !slices.ContainsFunc(f.Rules, func(rule jobset.FailurePolicyRule) bool {
		return rule.Action == jobset.RestartJobSetAndIgnoreMaxRestarts && slices.Equal(rule.OnJobFailureReasons, []string{batch.JobReasonPodFailurePolicy}) && slices.Equal(rule.TargetReplicatedJobs, []string{r.Name})
	}) {
		t.Errorf("jobset.yaml: preemptions count in maxRestarts: %+v", f)
	}

	var runtime trainer.TrainingRuntime
	var train trainer.TrainJob
	decode(t, "trainjob.yaml", &runtime, &train)
	version := trainer.SchemeGroupVersion.String()
	if version != runtime.APIVersion || runtime.Kind != trainer.TrainingRuntimeKind || version != train.APIVersion || train.Kind != trainer.TrainJobKind {
		t.Errorf("%s %s, %s %s", runtime.APIVersion, runtime.Kind, train.APIVersion, train.Kind)
	}
	if ref := train.Spec.RuntimeRef; ref.Name != runtime.Name || *ref.Kind != runtime.Kind || *ref.APIGroup != trainer.SchemeGroupVersion.Group || runtime.Spec.MLPolicy.Torch == nil {
		t.Errorf("%+v of %+v", ref, runtime.Spec.MLPolicy)
	}
	node := runtime.Spec.Template.Spec.ReplicatedJobs[0]
	if node.Name != "node" || node.Template.Labels["trainer.kubeflow.org/trainjob-ancestor-step"] != "trainer" {
		t.Errorf("the trainer finds no pods in %+v", node)
	}
	checkPod(t, "trainjob.yaml", node.Template.Spec.Template.Spec)
}

// checkPreemption requires that the Job acts as named on preempted pods and on those that end with
// status 143 because of it.
func checkPreemption(t *testing.T, file string, spec batch.JobSpec, action batch.PodFailurePolicyAction) {
	t.Helper()
	conditions, codes := false, false
	if spec.PodFailurePolicy != nil {
		for _, rule := range spec.PodFailurePolicy.Rules {
			e := rule.OnExitCodes
			conditions = conditions || rule.Action == action && slices.ContainsFunc(rule.OnPodConditions, func(c batch.PodFailurePolicyOnPodConditionsPattern) bool {
				return c.Type == core.DisruptionTarget && c.Status == core.ConditionTrue
			})
			codes = codes || rule.Action == action && e != nil && *e.ContainerName == spec.Template.Spec.Containers[0].Name && e.Operator == batch.PodFailurePolicyOnExitCodesOpIn && slices.Equal(e.Values, []int32{143})
		}
	}
	if !conditions || !codes || spec.Template.Spec.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("%s: preempted pods, and status 143: %+v", file, spec.PodFailurePolicy)
	}
}

// checkPod wants a pod whose quantities are some, whose ticket others may not read, and which has time to save.
func checkPod(t *testing.T, file string, pod core.PodSpec) {
	t.Helper()
	for _, c := range pod.Containers {
		i := slices.IndexFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/dev/shm" })
		if i < 0 || !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
			return v.Name == c.VolumeMounts[i].Name && v.EmptyDir != nil && v.EmptyDir.Medium == core.StorageMediumMemory && !v.EmptyDir.SizeLimit.IsZero()
		}) {
			t.Errorf("%s: /dev/shm has a container's 64 MiB", file)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: no requests and limit of resources", file)
		}
		for name, q := range c.Resources.Requests {
			if limit, is := c.Resources.Limits[name]; is && q.Cmp(limit) > 0 {
				t.Errorf("%s: %s: requests %v, more than the limit %v", file, name, &q, &limit)
			}
		}
	}
	if s := pod.TerminationGracePeriodSeconds; s == nil || *s < 30 {
		t.Errorf("%s: no 30 s to save", file)
	}
	for _, v := range pod.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName != "checkpoints" {
			t.Errorf("%s: the claim %s is in no file", file, c.ClaimName)
		}
		if v.Secret != nil && (*v.Secret.DefaultMode&0o007 != 0 || pod.SecurityContext.FSGroup == nil) {
			t.Errorf("%s: others may read volume %s, or the pod may not", file, v.Name)
		}
	}
}

// What ringo posts of a job's progress is an UpdateTrainJobStatusRequest, with all that it says.
func TestStatusRequest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "cmd", "ringo", "internal", "trainjob", "testdata", "request.json"))
	if err != nil {
		t.Fatal(err)
	}
	var request trainer.UpdateTrainJobStatusRequest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil || d.Decode(new(any)) != io.EOF {
		t.Fatal(err)
	}
	s := request.TrainerStatus
	if s == nil || *s.ProgressPercentage != 45 || *s.EstimatedRemainingSeconds != 91 || len(s.Metrics) != 256 || s.LastUpdatedTime.Year() != 2026 {
		t.Fatalf("%+v", s)
	}
	if got, err := json.Marshal(request); err != nil || !bytes.Equal(got, bytes.TrimSpace(text)) {
		t.Errorf("%v: written again it is\n%s", err, got)
	}
}
