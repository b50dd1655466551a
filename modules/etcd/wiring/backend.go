// Package membership is the part of package membership that opens rendezvous backends. overlay.json
// replaces internal/cluster/membership/backend.go, which rejects etcd, with this file: the main
// module must not import this module.
package membership

import (
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/modules/etcd"
)

// openBackend opens a rendezvous that is not an address.
//
//lint:ignore U1000 package membership calls it, with this file in place
func openBackend(address string) (rendezvous.Backend, error) {
	if strings.HasPrefix(address, rendezvous.Etcd) || strings.HasPrefix(address, rendezvous.EtcdTLS) {
		return etcd.Open(address)
	}
	return rendezvous.Open(address)
}
