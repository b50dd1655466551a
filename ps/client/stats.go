package client

import (
	"sync/atomic"
	"time"
)

// Stats are a client's counters since Dial.
type Stats struct {
	BytesSent, BytesReceived int64
	RowsPulled, RowsPushed   int64 // transferred rows
	RowsMerged               int64 // duplicate rows not transferred
	Messages                 int64 // sent messages, repetitions included
	Resent                   int64 // repeated messages
	Reconnects               int64
	PullWait                 time.Duration // wait for pulls
	PushWait                 time.Duration // wait for free windows
}

type counters struct {
	rowsPulled, rowsPushed, merged, messages, resent, reconnects, pullWait, pushWait atomic.Int64
}

// Stats returns the client's counters.
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
