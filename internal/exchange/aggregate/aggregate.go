// Package aggregate sums gradients on servers, synchronously: an exchange ends when every
// trainer has the sum of what all of them pushed. Servers keep nothing between exchanges;
// those that keep tables of parameters are the packages below ps.
//
// A job of N trainers and S servers is one mesh of N+S members. The ranks 0 to N-1
// train; each has a [Client], an exchange.Reducer that pushes a bucket's
// gradients and pulls their sum. The others serve: member N+i runs [Server]
// number i. Each bucket is cut over the servers by bytes, so that all of them
// take part in every exchange; a server's range is cut into segments, which
// follow each other: while one is added the next is on its way.
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
// A server adds in the order of ranks, which gives float32 the bits of
// collective.AllReduce by the naive algorithm. What it sends back every trainer
// decodes from the same bytes, so that replicas stay equal: dense sums in the code
// in which they came, rounded once, of float16 and bfloat16 the mean, which has room
// where the sum may have none; sparse sums as float32, since nobody would keep what
// another code loses of them, and sparse or dense, whichever is shorter.
//
// # Order and faults
//
// Exchanges match by the order in which trainers start them. A head says what an
// exchange is; trainers that differ end the job with an error that describes
// both. Every wait has a deadline, but for a server's while nobody has begun an
// exchange: it ends with its mesh. The first fault ends everything; it names who
// is lost. A trainer leaves by closing its client, and a server ends when all
// have left.
//
// # Cost
//
// Of K bytes with N trainers each trainer sends and receives K, each server NK/S.
// A server holds at most 4 segments of each trainer and 4 of sums, which go to all
// trainers at once: one that reads slowly holds the others up when it is 4 segments
// behind. A client has at most 4 segments for each server under way.
package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Config says who serves whom. All members of a job must give the same values.
type Config struct {
	// Trainers is how many members of the mesh train, the first ones. At least one member
	// must be left to serve.
	Trainers int
	// Timeout bounds every single wait for another member. 0: 10 minutes.
	Timeout time.Duration
	// SegmentBytes is the length of a dense segment, in bytes of float32: 1 KiB
	// to 16 MiB. Sparse ones stand for 8 times as many values, at most 4 Mi.
	// 0: 512 KiB.
	SegmentBytes int
	// Codes are what a server can decode besides the codes of package compress. Clients do
	// not need it: they take codes from the exchanges.
	Codes []compress.Quantiser
	// Record is where exchanges are recorded, on trainers and servers: see record.AggregationGroup.
	// It may be nil.
	Record *record.Recorder
}

const (
	defaultTimeout = 10 * time.Minute
	defaultSegment = 512 << 10 // bytes
	minSegment     = 1 << 10
	maxSegment     = 16 << 20
	maxValues      = maxSegment / 4 // of any segment
	sparseFactor   = 8
	// maxInFlight is how many segments of a trainer a server waits for, and how many
	// for each server a client lets be under way.
	maxInFlight = 4
)

// Validate reports all faults of the configuration together.
func (c Config) Validate() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("aggregate: "+format, args...))
		}
	}
	fault(c.Trainers < 1, "%d trainers: want at least 1", c.Trainers)
	fault(c.Timeout < 0, "timeout %v: want 0 or more", c.Timeout)
	fault(c.SegmentBytes != 0 && (c.SegmentBytes < minSegment || c.SegmentBytes > maxSegment),
		"segment bytes %d: want %d to %d, or 0 for %d", c.SegmentBytes, minSegment, maxSegment, defaultSegment)
	known := map[byte]string{}
	for _, q := range append(ownCodes(), c.Codes...) {
		other, twice := known[q.Code()]
		fault(twice, "codes %s and %s have the same number, %d", other, q.Name(), q.Code())
		known[q.Code()] = q.Name()
	}
	return errors.Join(faults...)
}

func (c Config) filled() Config {
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.SegmentBytes = cmp.Or(c.SegmentBytes, defaultSegment)
	return c
}

// fits reports a mesh that c is not for. serves says on which side of it the
// caller stands.
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

// ownCodes are those of this module.
func ownCodes() []compress.Quantiser {
	return []compress.Quantiser{compress.FP32{}, compress.FP16{}, compress.BF16{}, compress.Int8{}, compress.Sign{}}
}

// halves says that dense values of a code are divided by the number of trainers
// before they travel, so that their sum has room too.
func halves(code byte) bool { return code == compress.CodeFP16 || code == compress.CodeBF16 }

// role names a member of the mesh.
func role(member, trainers int) string {
	if member < trainers {
		return fmt.Sprintf("rank %d", member)
	}
	return fmt.Sprintf("server %d (rank %d)", member-trainers, member)
}
