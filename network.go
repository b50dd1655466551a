package ringo

import (
	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/ps/tables"
	"github.com/ringo-ml/ringo/setting"
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
	// Lending says whether large payloads are sent from where they lie instead of being copied into the socket:
	// "measured" (where a measurement of this machine says that it costs less), "always" or "never". Empty: "measured".
	// No result depends on it.
	Lending string
}

// Validate reports every fault of n at once.
func (n Network) Validate() error {
	var faults setting.Faults
	if _, err := cluster.ParsePortRange(n.PortRange); err != nil {
		faults = append(faults, setting.Faultf("network.port-range", "%w", err))
	}
	if n.Streams < 0 || n.Streams > tcp.MaxStreams {
		faults = append(faults, setting.Faultf("network.streams", "%d: want 1 to %d, or 0 for 1", n.Streams, tcp.MaxStreams))
	}
	if err := cluster.CheckInterface(n.Interface); err != nil {
		faults = append(faults, setting.Faultf("network.interface", "%w", err))
	}
	if err := tcp.CheckCongestionControl(n.CongestionControl); err != nil {
		faults = append(faults, setting.Faultf("network.congestion-control", "%w", err))
	}
	if err := tcp.CheckLending(n.Lending); err != nil {
		faults = append(faults, setting.Faultf("network.lending", "%w", err))
	}
	return faults.Err()
}

// Settings are the rows of what a person says of the connections between ranks, bound to n. Ranks that are goroutines of one
// process have none, nor have those that go on without each other.
func (n *Network) Settings() []setting.Row {
	connects := setting.All(setting.Not("job.transport", "mem"), setting.Not("servers.lost", string(tables.LostGoesOn)))
	return []setting.Row{
		{
			Path: "network.interface", Flag: "interface", Unit: "NAME", Scope: setting.Local, Needs: connects,
			About: "network interface on which ranks listen for each other; empty: that of the address by which they reach the coordinator",
			Value: setting.Text(&n.Interface),
		},
		{
			Path: "network.port-range", Flag: "port-range", Unit: "FIRST-LAST", Scope: setting.Local, Needs: connects,
			About: "ports on which ranks may listen for each other, such as 20000-20100; empty: any",
			Value: setting.Text(&n.PortRange),
		},
		{
			Path: "network.streams", Unit: "CONNECTIONS", Scope: setting.Changeable, Needs: connects,
			About: "connections between each two ranks; several help where one does not fill the link",
			Value: setting.Int(&n.Streams),
		},
		{
			Path: "network.congestion-control", Unit: "NAME", Scope: setting.Local, Needs: connects,
			About: "congestion control algorithm of the connections, such as reno, cubic or bbr; empty: the system's, and reno instead of bbr between ranks of one host",
			Value: setting.Text(&n.CongestionControl),
		},
		{
			Path: "network.checksum", Scope: setting.Changeable, Needs: connects,
			About: "check the payload of every message by a CRC-32C",
			Value: setting.Bool(&n.Checksum),
		},
		{
			Path: "network.lending", Scope: setting.Local, Needs: connects,
			About: "whether large payloads are sent from where they lie instead of being copied into the socket; measured: where that costs less on this machine. No result depends on it",
			Value: setting.Choice(&n.Lending, append([]string{""}, tcp.Lendings()...)...),
		},
	}
}

// ports is PortRange, which Validate has checked.
func (n Network) ports() cluster.PortRange {
	p, _ := cluster.ParsePortRange(n.PortRange)
	return p
}
