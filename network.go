package ringo

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/transport/tcp"
)

// Network says how ranks of different processes are connected. The zero value
// suits most: the address by which a rank reaches the coordinator, any port, one
// connection for each two ranks, the system's congestion control.
type Network struct {
	// Interface is the network interface on which this rank listens for the
	// others, by name.
	Interface string
	// PortRange is where it may listen: FIRST-LAST. Empty: any port.
	PortRange string
	// Streams is how many connections there are between two ranks, at most 16;
	// 0 means 1. Several pay where one does not fill the link. All ranks must
	// have the same.
	Streams int
	// CongestionControl is what the kernel uses for these connections: "reno",
	// "cubic", "bbr" or another that it offers. Empty: its default, and reno
	// instead of bbr between ranks of one host.
	CongestionControl string
	// Checksum has the payload of every message checked by a CRC-32C.
	Checksum bool
}

// Validate reports every fault of n at once.
func (n Network) Validate() error {
	_, err := cluster.ParsePortRange(n.PortRange)
	errs := []error{err}
	if n.Streams < 0 || n.Streams > tcp.MaxStreams {
		errs = append(errs, fmt.Errorf("%d streams: want 1 to %d, or 0 for 1", n.Streams, tcp.MaxStreams))
	}
	if err := cluster.CheckInterface(n.Interface); err != nil {
		errs = append(errs, err)
	}
	if err := tcp.CheckCongestionControl(n.CongestionControl); err != nil {
		errs = append(errs, fmt.Errorf("congestion control %w", err))
	}
	return errors.Join(errs...)
}

// ports is PortRange, which Validate has checked.
func (n Network) ports() cluster.PortRange {
	p, _ := cluster.ParsePortRange(n.PortRange)
	return p
}
