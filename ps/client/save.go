package client

import "github.com/ringo-ml/ringo/internal/server/message"

// Save requests a checkpoint of the whole job after a step, waits until all servers have written
// their parts, and returns the parts' numbers by server. All trainers call Save after a Flush, and
// push no more until it returns, so that the parts belong to the same step. Servers may delete
// parts of steps before oldest. Save takes at most Config.Timeout, and retries at restarted
// servers.
func (c *Client) Save(step, oldest uint64) ([]uint64, error) {
	l := c.Session(0)
	l.mu.Lock()
	p := l.pull(nil, 0)
	for _, k := range l.links {
		if err := k.save(p, message.Head{Step: step, At: oldest}); err != nil {
			l.mu.Unlock()
			return nil, err
		}
	}
	l.mu.Unlock()
	p.part(nil)
	if err := p.Wait(); err != nil {
		return nil, err
	}
	numbers := make([]uint64, len(l.links))
	for i, k := range l.links {
		k.mu.Lock()
		numbers[i] = k.saved
		k.mu.Unlock()
	}
	return numbers, nil
}

func (k *link) save(p *Pull, head message.Head) error {
	it, err := k.newRequest(message.TypeSave, p, head, 0)
	if err != nil {
		return err
	}
	return k.add(it)
}

func (k *link) savedAs(number uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.saved = number
}
