package ringo

import (
	"strings"
	"testing"
)

func TestNetworkValidatesAll(t *testing.T) {
	if err := (Network{}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Network{PortRange: "20000-20100", Streams: 16, Checksum: true}).Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Network: Network{Interface: "no such", PortRange: "9-8", Streams: 17, CongestionControl: "voodoo"}}.Validate()
	for _, want := range []string{`interface "no such"`, `"9-8"`, "17 streams", `"voodoo"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in %v", want, err)
		}
	}
}
