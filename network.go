package ringo

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
)

// Network configures the connections between ranks of different processes. The zero value suits
// most jobs: the network interface that leads to rank 0, any port, one connection per pair of
// ranks, the system's congestion control.
type Network struct {
	// Interface is the network interface of this rank's listener.
	Interface string
	// PortRange is the range of the listener's port: FIRST-LAST. Empty means any.
	PortRange string
	// Streams is the number of connections per pair of ranks, at most 16; 0 means 1. More than one
	// helps if a single connection does not fill the link. Streams must be equal on all ranks.
	Streams int
	// CongestionControl is the kernel's algorithm for connections between ranks: "reno", "cubic",
	// "bbr" or another of the kernel. Empty: the kernel's default, but inside a host reno, not bbr.
	CongestionControl string
	// Checksum enables a CRC-32C of each payload.
	Checksum bool
	// ZeroCopy selects whether large payloads are sent without a copy into the socket: "measured"
	// (if a measurement of this host shows a lower cost), "always" or "never". Empty means
	// "measured". ZeroCopy changes speed only, not results.
	ZeroCopy string
	// TLS selects the encrypted connections of the job, among those between ranks, with the
	// coordinator and with servers. The zero value encrypts connections between hosts, with
	// certificates derived from the ticket (the job's secret).
	TLS transport.TLS
}

// Validate returns all errors of n together.
func (n Network) Validate() error {
	var faults setting.ErrorList
	if _, err := cluster.ParsePortRange(n.PortRange); err != nil {
		faults = append(faults, setting.Errorf("network.port-range", "%w", err))
	}
	if n.Streams < 0 || n.Streams > tcp.MaxStreams {
		faults = append(faults, setting.Errorf("", "Network.Streams %d: want 1 to %d, or 0 for 1", n.Streams, tcp.MaxStreams))
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

// Settings returns the setting rows of n's fields. All rows apply only to jobs with ranks in
// separate processes. All except TLS also need connections between ranks, which a job that
// continues without a lost rank does not have.
func (n *Network) Settings() []setting.Row {
	processes := setting.NotEquals("job.transport", "mem")
	connects := setting.All(setting.NotEquals("job.transport", "mem"), setting.NotEquals("ps.failure-policy", string(engine.ContinueJob)))
	return []setting.Row{
		{
			Path: "network.interface", Commands: setting.AllCommands &^ setting.Run, Flag: "interface", Unit: "NAME", Scope: setting.PerProcess, Needs: connects,
			About: "network interface where ranks listen for each other; empty: the interface of the address by which they reach the coordinator",
			Value: setting.Text(&n.Interface),
		},
		{
			Path: "network.port-range", Commands: setting.AllCommands &^ setting.Run, Unit: "FIRST-LAST", Scope: setting.PerProcess, Needs: connects,
			About: "ports where ranks may listen for each other, such as 20000-20100; empty: any",
			Value: setting.Text(&n.PortRange),
		},
		{
			Path: "network.tls", Commands: setting.AllCommands, Unit: "MODE[,CA,CERT,KEY]", Scope: setting.PerProcess, Needs: processes,
			About: "connections encrypted by TLS 1.3 with certificates at both ends: auto (between hosts), on (all), off (none), the same for all processes; then PEM files instead of certificates from the job's ticket: the CA certificates required of other processes, this process's certificate, and its private key, read again for each connection",
			Value: setting.Parsed(&n.TLS, parseTLS, tlsText),
		},
	}
}

// parseTLS reads MODE or MODE,CA,CERT,KEY.
func parseTLS(text string) (transport.TLS, error) {
	parts := strings.Split(text, ",")
	modes := []string{"", transport.TLSAuto, transport.TLSOn, transport.TLSOff}
	switch {
	case !slices.Contains(modes, parts[0]) || len(parts) != 1 && len(parts) != 4 || slices.Contains(parts[1:], ""):
		return transport.TLS{}, errors.New("want auto, on or off, with own certificates auto,CA,CERT,KEY or on,CA,CERT,KEY")
	case len(parts) == 1:
		return transport.TLS{Mode: parts[0]}, nil
	}
	return transport.TLS{Mode: parts[0], CA: parts[1], Cert: parts[2], Key: parts[3]}, nil
}

// tlsText is the inverse of parseTLS.
func tlsText(c transport.TLS) string {
	if c == (transport.TLS{Mode: c.Mode}) {
		return c.Mode
	}
	return strings.Join([]string{cmp.Or(c.Mode, transport.TLSAuto), c.CA, c.Cert, c.Key}, ",")
}

// ports returns PortRange as numbers. Validate must have accepted n.
func (n Network) ports() cluster.PortRange {
	p, _ := cluster.ParsePortRange(n.PortRange)
	return p
}
