// Package ringo is the part of package ringo that opens where ranks meet. overlay.json has it stand in place of place.go, which
// refuses etcd: the main module must not import this one.
package ringo

import (
	"strings"

	"github.com/ringo-ml/ringo/cluster/meeting/etcd"
	"github.com/ringo-ml/ringo/internal/cluster/meeting"
)

// openPlace opens a rendezvous that is no address.
//
//lint:ignore U1000 package ringo calls it, with this file in place
func openPlace(rendezvous string) (meeting.Backend, error) {
	if strings.HasPrefix(rendezvous, meeting.Etcd) || strings.HasPrefix(rendezvous, meeting.EtcdTLS) {
		return etcd.Open(rendezvous)
	}
	return meeting.Open(rendezvous)
}
