package main

import (
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo"
)

// networkFlags say how the connections between ranks are made.
type networkFlags struct{ network ringo.Network }

// networkFlagNames are their names.
var networkFlagNames = []string{"interface", "port-range", "streams", "congestion-control", "checksum"}

func (f *networkFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.network.Interface, "interface", "", "network `interface` on which ranks listen for each other; default: that of the address by which they reach the coordinator")
	fs.StringVar(&f.network.PortRange, "port-range", "", "`ports` on which they may listen, such as 20000-20100; default: any")
	fs.IntVar(&f.network.Streams, "streams", 1, "`connections` between each two ranks; several pay where one does not fill the link")
	fs.StringVar(&f.network.CongestionControl, "congestion-control", "", "congestion control `algorithm` of the connections, such as reno, cubic or bbr; default: the system's, and reno instead of bbr between ranks of one host")
	fs.BoolVar(&f.network.Checksum, "checksum", false, "check the payload of every message by a CRC-32C")
}

// check reports faults, those of flags that would have no effect too: used says
// whether ranks make connections at all, changed which flags were given.
func (f *networkFlags) check(faults *faultList, used bool, changed func(name string) bool) {
	if err := f.network.Validate(); err != nil {
		faults.add("%w", err)
	}
	if f.network.Streams == 0 {
		faults.add("--streams 0: want 1 to 16")
	}
	for _, name := range networkFlagNames {
		if !used && changed(name) {
			faults.add("--%s has no effect here: ranks that are goroutines of one process make no connections", name)
		}
	}
}
