// Package hosts parses the hosts and slots of a job, in the syntax of MPI launchers, and starts
// programs on the hosts through the system's ssh.
package hosts

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// Host is a line of a host file.
type Host struct {
	// Name is a destination for ssh: a host name, a name in its settings, or an address, with
	// USER@.
	Name string
	// Slots is the maximum number of ranks on the host.
	Slots int
}

const (
	maxHosts = 1024
	maxSlots = 1024
)

// name matches destinations that are safe for ssh: neither an option nor several shell words.
var name = regexp.MustCompile(`^[A-Za-z0-9_.:][A-Za-z0-9_.@%:-]*$`)

// Parse parses "a:4,b:4" like mpirun's --host: a host without a number has one slot, and the slots
// of a repeated host add up. IPv6 addresses are in brackets.
func Parse(list string) ([]Host, error) {
	var hosts []Host
	for word := range strings.SplitSeq(list, ",") {
		h, err := parseHost(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if hosts, err = add(hosts, h); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// maxFile is the maximum size of a host file, in bytes.
const maxFile = 1 << 20

// ReadFile reads a host file: see ParseFile.
func ReadFile(path string) ([]Host, error) {
	text, err := pathname.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	named, err := ParseFile(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return named, nil
}

// ParseFile parses a host file of Open MPI (host slots=2) or MPICH (host:2), with # comments.
func ParseFile(text string) ([]Host, error) {
	var hosts []Host
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		h, err := parseHost(words[0])
		if err == nil {
			err = h.options(words[1:])
		}
		if err == nil {
			hosts, err = add(hosts, h)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("no host: want lines such as \"node1 slots=4\" or \"node1:4\"")
	}
	return hosts, nil
}

// options parses the options after a host: slots=N and max_slots=N; only slots has an effect.
func (h *Host) options(words []string) error {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "slots":
			n, err := slots(value)
			if err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
			h.Slots = n
		case "max_slots", "max-slots": // limit for oversubscription, which ringo does not use
		default:
			return fmt.Errorf("%s: %q is not known: want slots=N", h.Name, w)
		}
	}
	return nil
}

func parseHost(word string) (Host, error) {
	host, count, counted := strings.Cut(word, ":")
	if inner, rest, ok := strings.Cut(word, "]"); ok && strings.HasPrefix(word, "[") {
		host, counted = inner[1:], rest != ""
		if count = rest; strings.HasPrefix(rest, ":") {
			count = rest[1:]
		} else if counted {
			count = "]" + rest
		}
	}
	h := Host{Name: host, Slots: 1}
	if !name.MatchString(h.Name) {
		return h, fmt.Errorf("host %q: want a name or address and the number of ranks: HOST:N,HOST:N", word)
	}
	if !counted {
		return h, nil
	}
	n, err := slots(count)
	if err != nil {
		return h, fmt.Errorf("host %q: %w", word, err)
	}
	h.Slots = n
	return h, nil
}

func slots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("%q ranks: want 1 to %d", text, maxSlots)
	}
	return n, nil
}

func add(hosts []Host, h Host) ([]Host, error) {
	for i := range hosts {
		if hosts[i].Name == h.Name {
			if hosts[i].Slots += h.Slots; hosts[i].Slots > maxSlots {
				return nil, fmt.Errorf("host %q: %d ranks: want 1 to %d", h.Name, hosts[i].Slots, maxSlots)
			}
			return hosts, nil
		}
	}
	if len(hosts) == maxHosts {
		return nil, fmt.Errorf("more than %d hosts", maxHosts)
	}
	return append(hosts, h), nil
}

// String formats hosts for Parse.
func String(hosts []Host) string {
	var words []string
	for _, h := range hosts {
		n := h.Name
		if strings.Contains(n, ":") {
			n = "[" + n + "]"
		}
		words = append(words, fmt.Sprintf("%s:%d", n, h.Slots))
	}
	return strings.Join(words, ",")
}

// Slots returns the total number of slots.
func Slots(hosts []Host) (n int) {
	for _, h := range hosts {
		n += h.Slots
	}
	return n
}

// Fill returns the host of each of n ranks, as an index into hosts. Ranks of a host have
// consecutive numbers, as with MPI launchers. hosts must have n slots.
func Fill(hosts []Host, n int) []int {
	var at []int
	for i, h := range hosts {
		for range h.Slots {
			if len(at) < n {
				at = append(at, i)
			}
		}
	}
	return at
}

// Deal returns the host of each of n servers, round-robin, up to the slots of each host.
func Deal(hosts []Host, n int) []int {
	var at []int
	for round := 0; len(at) < n; round++ {
		before := len(at)
		for i, h := range hosts {
			if len(at) < n && round < h.Slots {
				at = append(at, i)
			}
		}
		if len(at) == before { // all hosts are full
			return append(at, Deal(hosts, n-len(at))...)
		}
	}
	return at
}
