package extenv

import (
	"net"
	"sort"
	"strconv"
	"strings"
)

// port is the default port of rank 0 in pods, as in PyTorch and Kubeflow.
const port = "29500"

// trainer reads the place of a pod of Kubeflow Trainer, or of any system that sets torchrun's
// options by variables, without torchrun. The pod starts PET_NPROC_PER_NODE ranks.
func trainer(r *reader) (Assignment, bool) {
	if !r.any("PET_NNODES", "PET_NODE_RANK") {
		return Assignment{}, false
	}
	p := Assignment{Launcher: "Kubeflow Trainer", Each: 1}
	nodes := r.text("PET_NNODES")
	if low, high, ranged := strings.Cut(nodes, ":"); ranged {
		if low != high {
			r.fail("PET_NNODES=%s: a job has a fixed number of ranks: want one number", nodes)
		}
		nodes = low
	}
	n, err := natural(nodes)
	if err != nil || n < 1 {
		r.fail("PET_NNODES=%q: want a number of pods from 1 on", nodes)
		n = 1
	}
	switch each := r.optional("PET_NPROC_PER_NODE"); each {
	case "", "auto", "cpu", "gpu": // one rank, on all cores
	default:
		p.Each = r.number("PET_NPROC_PER_NODE", 1)
		r.used = r.used[:len(r.used)-1]
	}
	node := r.number("PET_NODE_RANK", 0)
	if node >= n {
		r.fail("PET_NODE_RANK is %d, but PET_NNODES is %s", node, nodes)
	}
	if index := r.quiet("JOB_COMPLETION_INDEX"); index != "" {
		r.same("PET_NODE_RANK", strconv.Itoa(node), "JOB_COMPLETION_INDEX", index)
	}
	p.Rank, p.Size, p.LocalSize = node*p.Each, n*p.Each, p.Each
	if n > 1 {
		p.Address = r.address("PET_MASTER_ADDR", "PET_MASTER_PORT", 0)
		p.Job = "pods " + p.Address
	}
	return p, true
}

// volcano reads the place of a Volcano pod. The svc plugin lists the hosts of each kind of task,
// and the env plugin sets the pod's index within its kind.
func volcano(r *reader) (Assignment, bool) {
	if !r.any("VC_TASK_INDEX", "VK_TASK_INDEX") {
		return Assignment{}, false
	}
	p := Assignment{Launcher: "Volcano"}
	index := "VC_TASK_INDEX"
	if !r.has(index) {
		index = "VK_TASK_INDEX"
	}
	p.Rank = r.number(index, 0)
	if r.has("VC_TASK_INDEX") && r.has("VK_TASK_INDEX") {
		r.same("VC_TASK_INDEX", r.quiet("VC_TASK_INDEX"), "VK_TASK_INDEX", r.quiet("VK_TASK_INDEX"))
	}
	task := r.task(p.Rank)
	if task == "" {
		r.fail("no VC_TASK_HOSTS, with this task's name for TASK, has %s in place %d: does the job have the svc plugin?", r.host.Hostname, p.Rank)
		return p, true
	}
	hosts := words(r.text("VC_" + task + "_HOSTS"))
	p.Size = len(hosts)
	if r.has("VC_" + task + "_NUM") {
		r.same("VC_"+task+"_NUM", r.quiet("VC_"+task+"_NUM"), "the number of VC_"+task+"_HOSTS", strconv.Itoa(p.Size))
	}
	p.Address = net.JoinHostPort(hosts[0], port)
	p.Job = "pods " + p.Address
	return p, true
}

// task returns this host's kind of task, in capitals and with underscores: the part KIND of the
// host name, JOB-KIND-INDEX, for which the variable VC_KIND_HOSTS lists this host at index.
func (r *reader) task(index int) string {
	parts := strings.Split(r.host.Hostname, "-")
	var names []string
	for i := range parts {
		for j := i + 1; j <= len(parts); j++ {
			names = append(names, strings.ToUpper(strings.Join(parts[i:j], "_")))
		}
	}
	sort.Slice(names, func(i, j int) bool { return len(names[i]) > len(names[j]) })
	for _, name := range names {
		hosts := words(r.quiet("VC_" + name + "_HOSTS"))
		if index < len(hosts) && short(hosts[index]) == r.host.Hostname {
			return name
		}
	}
	return ""
}

// indexed reads the place of a pod of an indexed Job, or of a JobSet, with a headless Service. The
// pod has its index and name, but not the number of pods.
func indexed(r *reader) (Assignment, bool) {
	const name = "JOB_COMPLETION_INDEX"
	if !r.has(name) {
		return Assignment{}, false
	}
	p := Assignment{Launcher: "an indexed Job of Kubernetes", Rank: r.number(name, 0)}
	base, ok := strings.CutSuffix(short(r.host.Hostname), "-"+strconv.Itoa(p.Rank))
	if len(r.errs) > 0 {
		return p, true
	}
	if !ok {
		r.fail("%s=%d, but this host is called %s: want a name that ends in -%d, as pods of an indexed Job have", name, p.Rank, r.host.Hostname, p.Rank)
		return p, true
	}
	domain := ""
	for _, full := range r.host.Names {
		if rest, ok := strings.CutPrefix(full, short(r.host.Hostname)+"."); ok {
			domain = rest
			break
		}
	}
	if domain == "" {
		return p, true // without a resolvable name: package launch reports the remedy
	}
	p.Address = net.JoinHostPort(base+"-0."+domain, port)
	p.Job = "pods " + p.Address
	return p, true
}

// short removes the domain from a host name.
func short(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
