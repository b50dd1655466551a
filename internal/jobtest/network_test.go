package jobtest

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/transport"
)

func TestNetworkValidatesAll(t *testing.T) {
	if err := (ringo.Network{}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (ringo.Network{PortRange: "20000-20100", Streams: 16, Checksum: true}).Validate(); err != nil {
		t.Error(err)
	}
	err := ringo.Config{Network: ringo.Network{Interface: "no such", PortRange: "9-8", Streams: 17, CongestionControl: "voodoo", TLS: transport.TLS{Mode: "perhaps"}}}.Validate()
	for _, want := range []string{`network.interface "no such"`, `network.port-range "9-8"`, "Network.Streams 17", `Network.CongestionControl "voodoo"`, `network.tls "perhaps"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in %v", want, err)
		}
	}
}

func TestNetworkSettings(t *testing.T) {
	for _, c := range []struct{ transport, lost, idle string }{
		{"shm", "end", ""},
		{"mem", "end", "it needs job.transport other than mem"},
		{"tcp", "continue", "it needs ps.failure-policy other than continue"},
	} {
		n := ringo.Network{Streams: 1}
		table, err := setting.New(append(n.Settings(), setting.Row{Path: "job.transport", Value: setting.Text(&c.transport)}, setting.Row{Path: "ps.failure-policy", Value: setting.Text(&c.lost)})...)
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{"": "", "on": "on", ",a,b,c": "auto,a,b,c", "on,a,b,c": "on,a,b,c", "a,b,c": "-", "on,a,b": "-", "on,a,,c": "-", "maybe": "-"} {
			err := table.Apply(setting.Assignment{Path: "network.tls", Text: text}).Err()
			if got, _ := table.Get("network.tls"); err == nil && got != want || (err != nil) != (want == "-") {
				t.Errorf("network.tls=%s: %q, %v", text, got, err)
			}
		}
		n.TLS = transport.TLS{}
		given := map[setting.Path]string{"network.interface": "lo", "network.port-range": "7-9"}
		for p, text := range given {
			if err := table.Apply(setting.Assignment{Path: p, Text: text, Origin: "test"}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if want := (ringo.Network{Interface: "lo", PortRange: "7-9", Streams: 1}); n != want {
			t.Errorf("got %+v, want %+v", n, want)
		}
		idle := table.Idle()
		if want := map[bool]int{true: 0, false: len(given)}[c.idle == ""]; len(idle) != want {
			t.Errorf("transport %s, lost %s: %v", c.transport, c.lost, idle)
		}
		for _, f := range idle {
			if !strings.HasSuffix(f.Error(), c.idle) {
				t.Errorf("%v, want %s", f, c.idle)
			}
		}
	}
}
