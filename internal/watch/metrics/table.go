// Package metrics is the metrics of a job's processes: a table, and plain words of memory per rank.
//
//	board, err := metrics.Open(metrics.PathOf(ticket)) // of this job, on this host
//	mine, err := board.Rank(3, 8)                      // rank 3 of 8
//	mine.Add(metrics.Samples, 0, 256)                  // an atomic addition
//
// The words are in memory shared by the processes of a host (a [Dir]): one process can answer for
// all, and the values of a dead rank remain. An update is an atomic operation; readers do the rest
// (package internal/watch/metrics/scrape, by Prometheus's client). A nil *RankMetrics does nothing.
package metrics

import (
	"slices"
	"strconv"
	"time"
)

// Type is the type of a metric.
type Type string

// Values of Type, with Prometheus's names.
const (
	Counter   Type = "counter" // never decreases while the process lives
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Role is the kind of process that a metric belongs to.
type Role string

// Values of Role.
const (
	OfHost            Role = "host"       // answering process
	OfRank            Role = "rank"       // training rank: label rank
	OfAggregator      Role = "aggregator" // aggregation server: label server
	OfParameterServer Role = "server"     // parameter server: label server
	OfServing         Role = "serve"      // process of `ringo serve`
)

// unit is the encoding of a row's words.
type unit int

const (
	integers unit = iota
	nanoseconds
	floats // float64 bits; NaN: unknown
)

// Row describes a metric.
type Row struct {
	Name string
	Type Type
	// Help is the description, on a single line.
	Help string
	Role Role
	// Label is the label of the row in addition to the role's; "" means a single value.
	Label string
	// Values are Label's fixed values. Peers are ranks; tables and tiers vary with the job.
	Values []string
	// From is the origin of the value, for docs/metrics.md.
	From string

	unit   unit
	tiers  bool // second label, tier
	ofPeer bool // Values are the ranks of the job
}

// Labels returns the row's labels, the role's first.
func (r *Row) Labels() (out []string) {
	switch r.Role {
	case OfRank:
		out = append(out, "rank")
	case OfAggregator, OfParameterServer:
		out = append(out, "server")
	}
	if r.Label != "" {
		out = append(out, r.Label)
	}
	if r.tiers {
		out = append(out, "tier")
	}
	return out
}

// ID is the index of a row in the table.
type ID int

// Rows of the table.
const (
	Build ID = iota
	Ranks

	// Up and the rows below are of ranks.
	Up
	StepDuration
	PhaseTime
	Samples
	Epoch
	Loss
	SentBytes
	Density
	Overlap
	ResidualNorm
	WaitTime
	LookedUpRows
	CachedRows
	Queue
	LastHeartbeat
	Resident
	CPUTime

	// AggregatorUp and the rows below are of aggregation servers.
	AggregatorUp
	AggregatorExchanges
	AggregatorReceived
	AggregatorSent
	AggregatorQueue
	AggregatorWaitTime
	AggregatorResident
	AggregatorCPUTime

	// ServerUp and the rows below are of parameter servers.
	ServerUp
	ServerTrainers
	ServerConnections
	ServerPulls
	ServerWaitingPulls
	ServerChanges
	ServerPulledRows
	ServerPushedRows
	ServerReceived
	ServerSent
	ServerStaleness
	ServerStep
	ServerRows
	ServerBytes
	ServerKeys
	ServerHits
	ServerDenied
	ServerEvicted
	ServerPrefetched
	ServerDeleted
	ServerLog
	ServerLogLimit
	ServerLogQueue
	ServerCheckpoint
	ServerResident
	ServerCPUTime

	// ServeRequests and the rows below are of `ringo serve`.
	ServeRequests
	ServeDuration
	ServeForward
	ServeRows
	ServeBatches
	ServeQueue
	ServeActive
	ServeRejections
	ServeUnknownWords
	ServeSwaps
	ServeStep
	ServeAge
	ids
)

// Bounds are the upper bounds in seconds of the histogram's buckets, except the last.
var Bounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// Label indexes of SentBytes.
const (
	TCP = iota // sockets
	SHM        // memory shared by the ranks of a host
)

// Label indexes of Queue.
const (
	OperationQueue = iota
	BatchQueue
)

// Label indexes of PhaseTime.
const (
	DataPhase = iota
	PullPhase
	ComputePhase
	CompressPhase
	WaitPhase
	UpdatePhase
)

var phases = []string{DataPhase: "data", PullPhase: "pull", ComputePhase: "compute", CompressPhase: "compress", WaitPhase: "wait", UpdatePhase: "update"}

var table = [ids]Row{
	Build: {Name: "ringo_build_info", Type: Gauge, Role: OfHost, Label: "version", Help: "1, with the version of the serving process.", From: "the serving process"},
	Ranks: {Name: "ringo_ranks", Type: Gauge, Role: OfHost, Help: "Number of ranks of the job, on all hosts.", From: "metrics of the ranks"},

	Up: {Name: "ringo_up", Type: Gauge, Role: OfRank, Help: "1 while the process of the rank runs, 0 after its end; other metrics of the rank keep their last values.", From: "the lock on the rank's metrics, which the system releases when the process ends"},
	StepDuration: {Name: "ringo_step_duration_seconds", Type: Histogram, Role: OfRank, unit: nanoseconds,
		Help: "Duration of training steps, from the batch to the update.", From: "`train`, after each step"},
	PhaseTime: {Name: "ringo_phase_seconds_total", Type: Counter, Role: OfRank, Label: "phase", Values: phases, unit: nanoseconds,
		Help: "Time of steps by phase: wait for data, wait for rows of servers (pull), compute forward and backward, compress, wait for exchanges after backward, update.",
		From: "`train`, after each step"},
	Samples: {Name: "ringo_samples_total", Type: Counter, Role: OfRank, Help: "Samples in the steps of the rank.", From: "`train`, after each step"},
	Epoch:   {Name: "ringo_epoch", Type: Gauge, Role: OfRank, Help: "Current epoch, from 1.", From: "`train`, after each step"},
	Loss:    {Name: "ringo_loss", Type: Gauge, Role: OfRank, unit: floats, Help: "Loss of the rank's last batch, before its update.", From: "`train`, after each step"},
	SentBytes: {Name: "ringo_sent_bytes_total", Type: Counter, Role: OfRank, Label: "link", Values: []string{TCP: "tcp", SHM: "shm"},
		Help: "Bytes written to sockets of other ranks and of the coordinator (tcp), and bytes of operands in memory shared by the ranks of a host, without copies (shm).",
		From: "`Job.Traffic` and `transport.SharedMemory.BytesCarried`, once a second"},
	Density: {Name: "ringo_density_ratio", Type: Gauge, Role: OfRank, unit: floats,
		Help: "Share of the gradient's values sent in the last step, from 0 to 1.", From: "`distopt.StepTimes.Density`"},
	Overlap: {Name: "ringo_overlap_ratio", Type: Gauge, Role: OfRank, unit: floats,
		Help: "Share of the exchange time hidden behind backward in the last step, from 0 to 1.", From: "`distopt.StepTimes`: 1 - Exposed/Exchange"},
	ResidualNorm: {Name: "ringo_residual_norm", Type: Gauge, Role: OfRank, unit: floats,
		Help: "Euclidean norm of the residual: gradients deferred to later steps by compression.", From: "`distopt.Optimizer.ResidualNorm`, at most every 10 seconds"},
	WaitTime: {Name: "ringo_wait_seconds_total", Type: Counter, Role: OfRank, Label: "peer", ofPeer: true, unit: nanoseconds,
		Help: "Time of operations in a wait for a peer, estimated from two samples per second.", From: "peers of the operations in flight"},
	LookedUpRows: {Name: "ringo_looked_up_rows_total", Type: Counter, Role: OfRank, Help: "Different rows of each batch, with a row cache: looked up there, then on servers.", From: "`train`, after each step"},
	CachedRows:   {Name: "ringo_cached_rows_total", Type: Counter, Role: OfRank, Help: "Looked-up rows found in the row cache.", From: "`train`, after each step"},
	Queue: {Name: "ringo_queue_depth", Type: Gauge, Role: OfRank, Label: "queue", Values: []string{OperationQueue: "operations", BatchQueue: "batches"},
		Help: "Length of a queue: unfinished operations of all ranks, and batches ready for training.", From: "`record.Recorder.Open`, once a second, and the loader, after each step"},
	LastHeartbeat: {Name: "ringo_last_heartbeat_timestamp_seconds", Type: Gauge, Role: OfRank, unit: nanoseconds,
		Help: "Time of the coordinator's last message to the rank, in seconds since 1970.", From: "the connection to the coordinator, once a second"},
	Resident: {Name: "ringo_resident_memory_bytes", Type: Gauge, Role: OfRank, Help: "Resident memory of the rank's process.", From: "`/proc/self/status`, every 5 seconds"},
	CPUTime:  {Name: "ringo_cpu_seconds_total", Type: Counter, Role: OfRank, unit: nanoseconds, Help: "Processor time of the rank's process.", From: "`getrusage`, every 5 seconds"},

	AggregatorUp:        {Name: "ringo_aggregator_up", Type: Gauge, Role: OfAggregator, Help: "1 while the process of the server runs, 0 after its end; other metrics of the server keep their last values.", From: "the lock on the server's metrics"},
	AggregatorExchanges: {Name: "ringo_aggregator_exchanges_total", Type: Counter, Role: OfAggregator, Help: "Buckets summed by the server, each in the server's part.", From: "`aggregate.Server.Stats`, once a second"},
	AggregatorReceived:  {Name: "ringo_aggregator_received_bytes_total", Type: Counter, Role: OfAggregator, Help: "Bytes of payload received from trainers.", From: "`aggregate.Server.Stats`, once a second"},
	AggregatorSent:      {Name: "ringo_aggregator_sent_bytes_total", Type: Counter, Role: OfAggregator, Help: "Bytes of payload sent to trainers.", From: "`aggregate.Server.Stats`, once a second"},
	AggregatorQueue:     {Name: "ringo_aggregator_queue_segments", Type: Gauge, Role: OfAggregator, Help: "Finished sums of segments that are not sent to a trainer yet.", From: "`aggregate.Server.Stats`, once a second"},
	AggregatorWaitTime: {Name: "ringo_aggregator_wait_seconds_total", Type: Counter, Role: OfAggregator, Label: "peer", ofPeer: true, unit: nanoseconds,
		Help: "Time of waits for a trainer while other trainers had begun, estimated from two samples per second.", From: "trainers awaited by the server"},
	AggregatorResident: {Name: "ringo_aggregator_resident_memory_bytes", Type: Gauge, Role: OfAggregator, Help: "Resident memory of the server's process.", From: "`/proc/self/status`, every 5 seconds"},
	AggregatorCPUTime:  {Name: "ringo_aggregator_cpu_seconds_total", Type: Counter, Role: OfAggregator, unit: nanoseconds, Help: "Processor time of the server's process.", From: "`getrusage`, every 5 seconds"},

	ServerUp:           {Name: "ringo_ps_up", Type: Gauge, Role: OfParameterServer, Help: "1 while the server waits for trainers or serves them, 0 when it is ending or has failed.", From: "`GET /health`'s state"},
	ServerTrainers:     {Name: "ringo_ps_connected_trainers", Type: Gauge, Role: OfParameterServer, Help: "Connected trainers.", From: "connections of the server"},
	ServerConnections:  {Name: "ringo_ps_connections_total", Type: Counter, Role: OfParameterServer, Help: "Connections with a successful handshake.", From: "the service's counters"},
	ServerPulls:        {Name: "ringo_ps_pulls_total", Type: Counter, Role: OfParameterServer, Help: "Answered pulls.", From: "the service's counters"},
	ServerWaitingPulls: {Name: "ringo_ps_waiting_pulls_total", Type: Counter, Role: OfParameterServer, Help: "Pulls that waited for slower trainers.", From: "the service's counters"},
	ServerChanges:      {Name: "ringo_ps_changes_total", Type: Counter, Role: OfParameterServer, Help: "Messages that change rows or arrays, such as pushes.", From: "the service's counters"},
	ServerPulledRows:   {Name: "ringo_ps_pulled_rows_total", Type: Counter, Role: OfParameterServer, Help: "Rows sent to trainers.", From: "the service's counters"},
	ServerPushedRows:   {Name: "ringo_ps_pushed_rows_total", Type: Counter, Role: OfParameterServer, Help: "Gradients of rows received.", From: "the service's counters"},
	ServerReceived:     {Name: "ringo_ps_received_bytes_total", Type: Counter, Role: OfParameterServer, Help: "Bytes received from trainers.", From: "the service's counters"},
	ServerSent:         {Name: "ringo_ps_sent_bytes_total", Type: Counter, Role: OfParameterServer, Help: "Bytes sent to trainers.", From: "the service's counters"},
	ServerStaleness:    {Name: "ringo_ps_staleness_steps", Type: Gauge, Role: OfParameterServer, Help: "Steps by which the slowest trainer is behind the fastest.", From: "the clocks of trainers"},
	ServerStep:         {Name: "ringo_ps_slowest_step", Type: Gauge, Role: OfParameterServer, Help: "Last step finished by all trainers.", From: "the clocks of trainers"},
	ServerRows:         {Name: "ringo_ps_rows", Type: Gauge, Role: OfParameterServer, Label: "table", tiers: true, Help: "Rows by tier: memory or ssd.", From: "the tables"},
	ServerBytes:        {Name: "ringo_ps_row_bytes", Type: Gauge, Role: OfParameterServer, Label: "table", tiers: true, Help: "Bytes of rows by tier: memory or ssd.", From: "the tables"},
	ServerKeys:         {Name: "ringo_ps_keys_total", Type: Counter, Role: OfParameterServer, Label: "table", Help: "Keys of pulls and pushes, in tables with two tiers.", From: "the tables"},
	ServerHits:         {Name: "ringo_ps_hits_total", Type: Counter, Role: OfParameterServer, Label: "table", tiers: true, Help: "Keys of pulls and pushes by the tier of the row: memory or ssd.", From: "the tables"},
	ServerDenied:       {Name: "ringo_ps_denied_keys_total", Type: Counter, Role: OfParameterServer, Label: "table", Help: "Keys without a row, rejected by admission.", From: "the tables"},
	ServerPrefetched:   {Name: "ringo_ps_prefetched_rows_total", Type: Counter, Role: OfParameterServer, Label: "table", Help: "Rows read from the SSD during a wait for other trainers: the pull found them in memory.", From: "the tables"},
	ServerEvicted:      {Name: "ringo_ps_evicted_rows_total", Type: Counter, Role: OfParameterServer, Label: "table", Help: "Rows moved from memory to the SSD.", From: "the tables"},
	ServerDeleted:      {Name: "ringo_ps_deleted_rows_total", Type: Counter, Role: OfParameterServer, Label: "table", Help: "Rows deleted at the end of a day.", From: "the tables"},
	ServerLog:          {Name: "ringo_ps_log_bytes", Type: Gauge, Role: OfParameterServer, Help: "Bytes of the log since the last checkpoint.", From: "the log"},
	ServerLogLimit:     {Name: "ringo_ps_log_limit_bytes", Type: Gauge, Role: OfParameterServer, Help: "Bytes of the log that start a checkpoint.", From: "the log"},
	ServerLogQueue:     {Name: "ringo_ps_log_queue_records", Type: Gauge, Role: OfParameterServer, Help: "Records of the log that are not durable yet.", From: "the log"},
	ServerCheckpoint:   {Name: "ringo_ps_checkpoint_number", Type: Gauge, Role: OfParameterServer, Help: "Number of the newest checkpoint, 0 for none.", From: "the engine"},
	ServerResident:     {Name: "ringo_ps_resident_memory_bytes", Type: Gauge, Role: OfParameterServer, Help: "Resident memory of the server's process.", From: "`/proc/self/status`"},
	ServerCPUTime:      {Name: "ringo_ps_cpu_seconds_total", Type: Counter, Role: OfParameterServer, Help: "Processor time of the server's process.", From: "`getrusage`"},

	ServeRequests: {Name: "ringo_serve_requests_total", Type: Counter, Role: OfServing, Label: "code",
		Values: []string{"200", "400", "404", "405", "408", "413", "415", "429", "499", "500", "503", "504"}, Help: "Requests for predictions, by the status of the response; 499: the client has left.", From: "the handlers of `/predict` and `/v2/models/NAME/infer`"},
	ServeDuration: {Name: "ringo_serve_request_duration_seconds", Type: Histogram, Role: OfServing, Help: "Duration of requests with predictions, from the first byte of the body to the response.", From: "the handlers"},
	ServeForward:  {Name: "ringo_serve_forward_seconds_total", Type: Counter, Role: OfServing, Help: "Time of the model's forward passes.", From: "the batches"},
	ServeRows:     {Name: "ringo_serve_rows_total", Type: Counter, Role: OfServing, Help: "Predicted rows.", From: "the batches"},
	ServeBatches: {Name: "ringo_serve_batches_total", Type: Counter, Role: OfServing, Label: "rows",
		Values: []string{"1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "more"}, Help: "Forward passes by their number of rows: the power of 2 that is not below.", From: "the batches"},
	ServeQueue:  {Name: "ringo_serve_queue_rows", Type: Gauge, Role: OfServing, Help: "Rows that wait for a batch.", From: "the queue"},
	ServeActive: {Name: "ringo_serve_active_requests", Type: Gauge, Role: OfServing, Help: "Requests without a response until now.", From: "the handlers"},
	ServeRejections: {Name: "ringo_serve_rejections_total", Type: Counter, Role: OfServing, Label: "reason", Values: []string{"queue", "requests", "memory", "body", "rows", "deadline"},
		Help: "Requests rejected for a limit: of waiting rows, requests at a time, memory of all bodies, bytes of a body, rows of a request, time.", From: "the handlers"},
	ServeUnknownWords: {Name: "ringo_serve_unknown_words_total", Type: Counter, Role: OfServing, Help: "Values of categories that training did not have.", From: "the rows of requests"},
	ServeSwaps: {Name: "ringo_serve_swaps_total", Type: Counter, Role: OfServing, Label: "result", Values: []string{"swapped", "failed"},
		Help: "Newer checkpoints: swapped, or failed, where the model before continues.", From: "the check of the folder"},
	ServeStep: {Name: "ringo_serve_checkpoint_step", Type: Gauge, Role: OfServing, Help: "Step of the checkpoint in use.", From: "the checkpoint"},
	ServeAge:  {Name: "ringo_serve_checkpoint_age_seconds", Type: Gauge, Role: OfServing, Help: "Time since the file of the checkpoint in use was written.", From: "the file's time"},
}

// Table returns all metrics, in the order of the documentation.
func Table() []Row { return slices.Clone(table[:]) }

// Row returns the description of a metric.
func (id ID) Row() *Row { return &table[id] }

// OfRole returns the rows of a role.
func OfRole(role Role) (out []ID) {
	for id := range ids {
		if table[id].Role == role {
			out = append(out, id)
		}
	}
	return out
}

func (r *Row) value(at int) string {
	if r.ofPeer {
		return strconv.Itoa(at)
	}
	return r.Values[at]
}

func (r *Row) words(size int) int {
	switch {
	case r.Type == Histogram:
		return len(Bounds) + 2 // count of each bucket, and the sum
	case r.ofPeer:
		return size
	}
	return max(1, len(r.Values))
}

func bucket(d time.Duration) int {
	at, _ := slices.BinarySearch(Bounds, d.Seconds())
	return at
}
