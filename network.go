package ringo

import (
	"errors"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
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
	// ZeroCopy says whether large payloads are sent from where they lie instead of being copied
	// into the socket: "measured" (where a measurement of this machine says that it costs less),
	// "always" or "never". Empty: "measured". No result depends on it.
	ZeroCopy string
	// TLS says which connections are encrypted, all that carry something of the job: between ranks, with the coordinator and
	// with servers. Zero: those between hosts, by certificates that are made of the job's ticket.
	TLS transport.TLS
}

// Validate reports every fault of n at once.
func (n Network) Validate() error {
	var faults setting.ErrorList
	if _, err := cluster.ParsePortRange(n.PortRange); err != nil {
		faults = append(faults, setting.Errorf("network.port-range", "%w", err))
	}
	if n.Streams < 0 || n.Streams > tcp.MaxStreams {
		faults = append(faults, setting.Errorf("network.streams", "%d: want 1 to %d, or 0 for 1", n.Streams, tcp.MaxStreams))
	}
	if err := cluster.CheckInterface(n.Interface); err != nil {
		faults = append(faults, setting.Errorf("network.interface", "%w", err))
	}
	if err := tcp.CheckCongestionControl(n.CongestionControl); err != nil {
		faults = append(faults, setting.Errorf("", "Network.CongestionControl %w", err))
	}
	if err := tcp.CheckLending(n.ZeroCopy); err != nil {
		faults = append(faults, setting.Errorf("", "Network.ZeroCopy %w", err))
	}
	return errors.Join(faults.Err(), n.TLS.Validate())
}

// Settings are the rows of what a person says of the connections between ranks, bound to n. Ranks that are goroutines of one
// process have none, nor have those that go on without each other.
func (n *Network) Settings() []setting.Row {
	processes := setting.NotEquals("job.transport", "mem")
	connects := setting.All(setting.NotEquals("job.transport", "mem"), setting.NotEquals("ps.failure-policy", string(engine.ContinueJob)))
	return []setting.Row{
		{
			Path: "network.interface", Commands: setting.AllCommands &^ setting.Run, Flag: "interface", Unit: "NAME", Scope: setting.PerProcess, Needs: connects,
			About: "network interface on which ranks listen for each other; empty: that of the address by which they reach the coordinator",
			Value: setting.Text(&n.Interface),
		},
		{
			Path: "network.port-range", Commands: setting.AllCommands &^ setting.Run, Flag: "port-range", Unit: "FIRST-LAST", Scope: setting.PerProcess, Needs: connects,
			About: "ports on which ranks may listen for each other, such as 20000-20100; empty: any",
			Value: setting.Text(&n.PortRange),
		},
		{
			Path: "network.streams", Commands: setting.AllCommands &^ setting.Run, Unit: "CONNECTIONS", Scope: setting.JobMutable, Needs: connects,
			About: "connections between each two ranks; several help where one does not fill the link",
			Value: setting.Int(&n.Streams),
		},
		{
			Path: "network.checksum", Commands: setting.AllCommands &^ setting.Run, Scope: setting.JobMutable, Needs: connects,
			About: "check the payload of every message by a CRC-32C",
			Value: setting.Bool(&n.Checksum),
		},
		{
			Path: "network.tls", Commands: setting.AllCommands, Scope: setting.PerProcess, Needs: processes,
			About: "which connections are encrypted, by TLS 1.3 with certificates at both ends: auto, those between hosts; on, all; off, none. The same for all processes",
			Value: setting.Choice(&n.TLS.Mode, "", transport.TLSAuto, transport.TLSOn, transport.TLSOff),
		},
		{
			Path: "network.tls-files", Commands: setting.AllCommands, Unit: "CA,CERT,KEY", Scope: setting.PerProcess, Needs: processes,
			About: "certificates in PEM that those of other processes must come from, this process's certificate, and its private key; each connection reads the files again; empty: certificates from the job's ticket",
			Value: setting.Textual(tlsFiles{&n.TLS}),
		},
	}
}

// tlsFiles are the files of a configuration as one text.
type tlsFiles struct{ *transport.TLS }

// MarshalText returns CA,CERT,KEY, or nothing without files.
func (f tlsFiles) MarshalText() ([]byte, error) {
	if *f.TLS == (transport.TLS{Mode: f.Mode}) {
		return nil, nil
	}
	return []byte(strings.Join([]string{f.CA, f.Cert, f.Key}, ",")), nil
}

// UnmarshalText reads what MarshalText writes.
func (f tlsFiles) UnmarshalText(text []byte) error {
	files := strings.Split(string(text), ",")
	if len(text) == 0 {
		files = make([]string, 3)
	} else if len(files) != 3 || slices.Contains(files, "") {
		return errors.New("want three files, CA,CERT,KEY")
	}
	f.CA, f.Cert, f.Key = files[0], files[1], files[2]
	return nil
}

// ports is PortRange, which Validate has checked.
func (n Network) ports() cluster.PortRange {
	p, _ := cluster.ParsePortRange(n.PortRange)
	return p
}
