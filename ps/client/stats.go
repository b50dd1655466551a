package client

import (
	"sync/atomic"
	"time"
)

// Stats is what a client has done since Dial.
type Stats struct {
	BytesSent, BytesReceived int64
	RowsPulled, RowsPushed   int64 // that travelled
	RowsMerged               int64 // that did not, because their key was in the batch already
	Messages                 int64 // sent, those that were sent again included
	Resent                   int64 // messages that were sent again
	Reconnects               int64
	PullWait                 time.Duration // in Wait
	PushWait                 time.Duration // for room in windows
}

type counters struct {
	rowsPulled, rowsPushed, merged, messages, resent, reconnects, pullWait, pushWait atomic.Int64
}

// Stats returns what the client has done.
func (c *Client) Stats() Stats {
	n := &c.count
	s := Stats{
		RowsPulled: n.rowsPulled.Load(), RowsPushed: n.rowsPushed.Load(),
		RowsMerged: n.merged.Load(), Messages: n.messages.Load(), Resent: n.resent.Load(), Reconnects: n.reconnects.Load(),
		PullWait: time.Duration(n.pullWait.Load()), PushWait: time.Duration(n.pushWait.Load()),
	}
	for _, k := range c.allLinks() {
		sent, received := k.traffic()
		s.BytesSent += sent
		s.BytesReceived += received
	}
	return s
}
