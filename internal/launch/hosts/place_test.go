package hosts

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// some makes hosts of random numbers of slots.
func some(rng *rand.Rand) (out []Host) {
	for i := range 1 + rng.IntN(6) {
		out = append(out, Host{Name: string(rune('a' + i)), Slots: 1 + rng.IntN(5)})
	}
	return out
}

// slotsInOrder is a naive twin of where ranks go: the host of each slot, host by host.
func slotsInOrder(hosts []Host) (out []int) {
	for i, h := range hosts {
		for range h.Slots {
			out = append(out, i)
		}
	}
	return out
}

// dealt is a naive twin of where servers go: one card after the other, to whoever has the fewest and still has room, from the left. When
// nobody has room the next deal begins.
func dealt(hosts []Host, n int) (out []int) {
	has := make([]int, len(hosts))
	for len(out) < n {
		best := -1
		for i, h := range hosts {
			if has[i] < h.Slots && (best < 0 || has[i] < has[best]) {
				best = i
			}
		}
		if best < 0 {
			clear(has)
			continue
		}
		has[best]++
		out = append(out, best)
	}
	return out
}

// Ranks fill their hosts, and servers are dealt to theirs, as naive twins have them.
func TestPlacesOfTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		hosts := some(rng)
		if n := rng.IntN(Slots(hosts) + 1); !reflect.DeepEqual(append([]int{}, Fill(hosts, n)...), slotsInOrder(hosts)[:n]) {
			t.Fatalf("%d ranks on %s: %v, want %v", n, String(hosts), Fill(hosts, n), slotsInOrder(hosts)[:n])
		}
		if n := rng.IntN(3 * Slots(hosts)); !reflect.DeepEqual(Deal(hosts, n), dealt(hosts, n)) {
			t.Fatalf("%d servers on %s: %v, want %v", n, String(hosts), Deal(hosts, n), dealt(hosts, n))
		}
	}
}

// What is written is read again, as a list and as a file.
func TestStringIsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		hosts := some(rng)
		hosts[0].Name = "fe80::1%eth0"
		text := String(hosts)
		again, err := Parse(text)
		if err != nil || !reflect.DeepEqual(again, hosts) {
			t.Fatalf("%s: %v, %v", text, again, err)
		}
		file := ""
		for _, h := range hosts {
			file += String([]Host{h}) + "\n"
		}
		if again, err = ParseFile(file); err != nil || !reflect.DeepEqual(again, hosts) {
			t.Fatalf("%s: %v, %v", file, again, err)
		}
	}
}
