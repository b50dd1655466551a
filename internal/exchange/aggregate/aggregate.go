// Package aggregate sums gradients on aggregation servers, synchronously: an exchange ends when
// every trainer has the sum over all pushes. Servers retain no state between exchanges; for
// parameter servers see internal/server.
//
// A job of N trainers and S servers is a mesh of N+S members. The ranks 0 to N-1 train; each has a
// [Client], an exchange.Reducer that pushes a bucket's gradients and pulls their sum. Member N+i
// runs [Server] number i. Each bucket is divided over the servers by bytes, so that all of them
// take part in every exchange. A server's range consists of segments, pipelined: while one is
// added, the next is in transit.
//
//	// a trainer
//	client, err := aggregate.NewClient(mesh, aggregate.Config{Trainers: n})
//	client.Start(op)
//	end, err := client.Wait(op)
//
//	// a server
//	server, err := aggregate.NewServer(mesh, aggregate.Config{Trainers: n})
//	err = server.Run(ctx)
//
// A server adds in the order of ranks, which gives float32 the bits of collective.AllReduce by the
// naive algorithm. Every trainer decodes the sum from the same bytes, so that replicas stay equal.
// Dense sums are sent in the code of the pushes, rounded once; in float16 and bfloat16 the mean is
// sent, because the sum may overflow. Sparse sums are sent as float32, as entries or as all values,
// in the shorter form: the rounding error of another code would be lost.
//
// # # Order and errors
//
// Exchanges match by the order of Start on each trainer. A head message describes an exchange; if
// two trainers send different heads, the job ends with an error that describes both. Every wait has
// a deadline, except for a server's wait before any exchange begins, which ends with the mesh. The
// first error ends the job and names the lost process. A trainer leaves by closing its client, and
// a server ends when all have left.
//
// # Cost
//
// For K bytes with N trainers, each trainer sends and receives K, each server NK/S. A server holds
// at most 4 segments of each trainer and 4 sums, each sent to all trainers: a slow reader delays
// all trainers when it is 4 segments late. A client has at most 4 segments for each server in
// flight.
package aggregate

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Config assigns roles and limits. All members of a job must have the same values.
type Config struct {
	// Trainers is the number of members that train, the first of the mesh. At least one member must
	// be left to serve.
	Trainers int
	// Timeout is the longest wait for one member. 0 means 10 minutes.
	Timeout time.Duration
	// SegmentBytes is the length of a dense segment, in bytes of float32: 1 KiB to 16 MiB. Sparse
	// segments cover 8 times as many values, at most 4 Mi. 0 means 512 KiB.
	SegmentBytes int
	// Codes are codes that a server can decode in addition to those of package compress. Clients
	// ignore this field: each exchange has a code.
	Codes []compress.Quantiser
	// Record is the recorder of exchanges, on trainers and servers: see record.AggregationGroup. It
	// may be nil.
	Record *record.Recorder
}

const (
	defaultTimeout = 10 * time.Minute
	defaultSegment = 512 << 10 // bytes
	minSegment     = 1 << 10
	maxSegment     = 16 << 20
	maxValues      = maxSegment / 4 // values of any segment
	sparseFactor   = 8
	// maxInFlight is the number of segments that a server awaits per trainer, and that a client has
	// in flight per server.
	maxInFlight = 4
)

// Validate reports all errors of the configuration together.
func (c Config) Validate() error {
	bad := faults.In("aggregate: ")
	bad.If(c.Trainers < 1, "%d trainers: want at least 1", c.Trainers)
	bad.If(c.Timeout < 0, "timeout %v: want 0 or more", c.Timeout)
	bad.If(c.SegmentBytes != 0 && (c.SegmentBytes < minSegment || c.SegmentBytes > maxSegment),
		"segment bytes %d: want %d to %d, or 0 for %d", c.SegmentBytes, minSegment, maxSegment, defaultSegment)
	known := map[byte]string{}
	for _, q := range append(Codes(), c.Codes...) {
		other, twice := known[q.Code()]
		bad.If(twice, "codes %s and %s have the same number, %d", other, q.Name(), q.Code())
		known[q.Code()] = q.Name()
	}
	return bad.Err()
}

func (c Config) filled() Config {
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.SegmentBytes = cmp.Or(c.SegmentBytes, defaultSegment)
	return c
}

// fits reports a mesh that does not fit c. serves is the caller's role.
func (c Config) fits(mesh transport.Mesh, serves bool) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Trainers >= mesh.Size() {
		return fmt.Errorf("aggregate: %d trainers in a mesh of %d leave no server", c.Trainers, mesh.Size())
	}
	if (mesh.Rank() >= c.Trainers) != serves {
		return fmt.Errorf("aggregate: member %d of a mesh with %d trainers is %s: NewClient is for trainers, NewServer for the others", mesh.Rank(), c.Trainers, role(mesh.Rank(), c.Trainers))
	}
	return nil
}

// Codes returns the codes that every server accepts: those of all strategies of package distopt.
func Codes() []compress.Quantiser {
	return []compress.Quantiser{compress.FP32{}, compress.FP16{}, compress.BF16{}, compress.Int8{}, compress.Sign{}}
}

// halves reports whether trainers divide dense values of a code by their number before sending, so
// that the sum does not overflow.
func halves(code byte) bool { return code == compress.CodeFP16 || code == compress.CodeBF16 }

// role names a member of the mesh.
func role(member, trainers int) string {
	if member < trainers {
		return fmt.Sprintf("rank %d", member)
	}
	return fmt.Sprintf("server %d (rank %d)", member-trainers, member)
}
