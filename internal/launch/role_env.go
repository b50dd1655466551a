package launch

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/transport"
)

// firstDescriptor is the first one after a process's input and outputs.
const firstDescriptor = 3

// RoleEnv is the place in its job of a process that is no rank, such as a server that keeps parameters.
type RoleEnv struct {
	// Role is the name of its role.
	Role string
	// Index is its number in the role, from 0.
	Index int
	// Addrs is where all of its role listen, if they do.
	Addrs []string
	// WorldSize is how many ranks train.
	WorldSize int
	// Ticket is the job's secret.
	Ticket transport.Ticket
	// TicketFile is a file that has it, in its place, or empty.
	TicketFile string
	// Socket is the number of a descriptor that listens at Addrs[Index]; 0: the role has no sockets, or the process was started by hand,
	// and is to listen there itself.
	Socket int
	// Transport is "shm", "tcp" or empty.
	Transport string
	// End is the number of a descriptor to the launcher: see ReportExit and SendHeartbeats.
	End int
	// Record, when above 0, is the number of the descriptor of the memory that the launcher holds for Recorder.
	Record int
}

// RoleFromEnv reads the variables of a process of a role as RankFromEnv reads a rank's. Without
// RINGO_ROLE_INDEX, with the role's name for ROLE, no launcher has started the process in that
// role, and present is false.
func RoleFromEnv(lookup func(string) (string, bool), role string) (env RoleEnv, present bool, err error) {
	index := indexVar(role)
	if _, present = lookup(index); !present {
		return RoleEnv{}, false, nil
	}
	r := envReader{lookup: lookup, because: index}
	env = RoleEnv{Role: role, Index: r.number(index, 0), WorldSize: r.number(WorldSizeVar, 1), Transport: r.transport()}
	if env.TicketFile, _ = lookup(TicketFileVar); env.TicketFile == "" {
		env.Ticket = r.ticket()
	} else if text, _ := lookup(TicketVar); text != "" {
		r.fail("%s and %s are both set: want one of them", TicketVar, TicketFileVar)
	}
	if v, _ := lookup(EndVar); v != "" {
		env.End = r.number(EndVar, firstDescriptor)
	}
	env.Record = r.record()
	if env.Addrs = r.addresses(role); env.Addrs != nil {
		if v, _ := lookup(SocketVar); v != "" {
			env.Socket = r.number(SocketVar, firstDescriptor)
		}
		if len(r.errs) == 0 && env.Index >= len(env.Addrs) {
			r.fail("%s=%d, but %s has %d addresses", index, env.Index, addrsVar(role), len(env.Addrs))
		}
	}
	return env, true, errors.Join(r.errs...)
}

// TableFromEnv is RoleFromEnv of a server that keeps parameters.
func TableFromEnv(lookup func(string) (string, bool)) (env RoleEnv, present bool, err error) {
	env, present, err = RoleFromEnv(lookup, tables)
	if present && err == nil && env.Socket == 0 {
		name := SocketVar
		if env.Addrs == nil {
			name = ParameterServersVar
		}
		err = (&envReader{lookup: lookup, because: TableVar}).missing(name)
	}
	return env, present, err
}

// Strings returns the variables as NAME=value: what RoleFromEnv reads.
func (e RoleEnv) Strings() []string {
	out := []string{
		indexVar(e.Role) + "=" + strconv.Itoa(e.Index),
		WorldSizeVar + "=" + strconv.Itoa(e.WorldSize),
		TicketVar + "=" + e.Ticket.String(),
	}
	if e.End > 0 {
		out = append(out, EndVar+"="+strconv.Itoa(e.End))
	}
	if e.Record > 0 {
		out = append(out, RecordVar+"="+strconv.Itoa(e.Record))
	}
	if e.Socket > 0 {
		out = append(out, SocketVar+"="+strconv.Itoa(e.Socket))
	}
	return append(out, addrsOf(e.Role, e.Addrs)...)
}

// addrsOf tells where the processes of a role listen, if they do.
func addrsOf(role string, addrs []string) []string {
	if len(addrs) == 0 {
		return nil
	}
	return []string{addrsVar(role) + "=" + strings.Join(addrs, ",")}
}

// addresses reads where the processes of a role listen.
func (r *envReader) addresses(role string) []string {
	name := addrsVar(role)
	text, ok := r.lookup(name)
	if !ok || text == "" {
		return nil
	}
	addrs := strings.Split(text, ",")
	for _, a := range addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			r.fail("%s=%q: want HOST:PORT,HOST:PORT,…, got %q", name, text, a)
		}
	}
	return addrs
}

// ticket reads the job's secret, which no error shows.
func (r *envReader) ticket() transport.Ticket {
	text := r.text(TicketVar)
	if text == "" {
		return nil
	}
	ticket, err := transport.ParseTicket(text)
	if err != nil {
		r.fail("%s: %w", TicketVar, err)
	}
	return ticket
}
