package launch

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/transport"
)

// firstDescriptor is the first descriptor after standard input, output and error.
const firstDescriptor = 3

// RoleEnv is the place in its job of a process that is not a rank, such as a parameter server.
type RoleEnv struct {
	// Role is the role's name.
	Role string
	// Index is the process's number in the role, from 0.
	Index int
	// Addrs are the addresses of all processes of the role, if the role listens.
	Addrs []string
	// WorldSize is the number of training ranks.
	WorldSize int
	// Ticket is the job's secret.
	Ticket transport.Ticket
	// TicketFile is a file with the secret, used instead of Ticket, or empty.
	TicketFile string
	// Socket is a descriptor that listens at Addrs[Index]. 0 means that the role has no sockets, or
	// that a process started by hand must listen there itself.
	Socket int
	// Transport is "shm", "tcp" or empty.
	Transport string
	// End is the descriptor of the pipe to the launcher: see ReportExit and SendHeartbeats.
	End int
	// Record is the descriptor of the launcher's memory for Recorder. 0 means none.
	Record int
}

// RoleFromEnv reads the variables of a process of a role, as RankFromEnv does for a rank. Without
// the index variable, RINGO_ROLE_INDEX with the role's name for ROLE, no launcher has started the
// process in the role, and present is false.
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
	env.End, env.Record = r.descriptor(ExitFDVar), r.descriptor(RecordFDVar)
	if env.Addrs = r.addresses(role); env.Addrs != nil {
		env.Socket = r.descriptor(ListenFDVar)
		if len(r.errs) == 0 && env.Index >= len(env.Addrs) {
			r.fail("%s=%d, but %s has %d addresses", index, env.Index, addrsVar(role), len(env.Addrs))
		}
	}
	return env, true, errors.Join(r.errs...)
}

// TableFromEnv is RoleFromEnv for a parameter server.
func TableFromEnv(lookup func(string) (string, bool)) (env RoleEnv, present bool, err error) {
	env, present, err = RoleFromEnv(lookup, tables)
	if present && err == nil && env.Socket == 0 {
		name := ListenFDVar
		if env.Addrs == nil {
			name = ParameterServersVar
		}
		err = (&envReader{lookup: lookup, because: TableVar}).missing(name)
	}
	return env, present, err
}

// Strings returns the variables read by RoleFromEnv, as NAME=value.
func (e RoleEnv) Strings() []string {
	out := variables{
		indexVar(e.Role) + "=" + strconv.Itoa(e.Index),
		WorldSizeVar + "=" + strconv.Itoa(e.WorldSize),
		TicketVar + "=" + e.Ticket.String(),
	}
	out.number(ExitFDVar, e.End)
	out.number(RecordFDVar, e.Record)
	out.number(ListenFDVar, e.Socket)
	out.text(addrsVar(e.Role), strings.Join(e.Addrs, ","))
	return out
}

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

// ticket reads the job's secret; no error contains the secret.
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
