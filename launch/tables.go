package launch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// socketNumber is the descriptor under which a server of tables finds its socket: the
// first after its input and outputs.
const socketNumber = 3

// TableEnv is the place of a server of tables in its job.
type TableEnv struct {
	Index     int      // its number, from 0
	Addrs     []string // where all of them listen
	WorldSize int      // how many ranks train
	Ticket    transport.Ticket
	// Socket is the number of a descriptor that listens at Addrs[Index].
	Socket int
	// Life is the number of a descriptor to which the server writes now and then: see ShowLife.
	Life int
}

// TableFromEnv reads a server's variables as FromEnv reads a rank's. Without
// RINGO_PS_INDEX the process is no server of tables that a launcher started, and present is false.
func TableFromEnv(lookup func(string) (string, bool)) (env TableEnv, present bool, err error) {
	if _, present = lookup(TableVar); !present {
		return TableEnv{}, false, nil
	}
	r := envReader{lookup: lookup, because: TableVar}
	env.Index = r.number(TableVar, 0)
	env.WorldSize = r.number(WorldSizeVar, 1)
	env.Socket = r.number(SocketVar, socketNumber)
	env.Life = r.number(LifeVar, socketNumber)
	if text := r.text(TicketVar); text != "" {
		if env.Ticket, err = transport.ParseTicket(text); err != nil {
			r.fail("%s: %w", TicketVar, err)
		}
	}
	if env.Addrs = r.addresses(); len(r.errs) == 0 && env.Index >= len(env.Addrs) {
		r.fail("%s=%d, but %s has %d addresses", TableVar, env.Index, TablesVar, len(env.Addrs))
	}
	return env, true, errors.Join(r.errs...)
}

// Strings returns the variables as NAME=value: what TableFromEnv reads.
func (e TableEnv) Strings() []string {
	return []string{
		TableVar + "=" + strconv.Itoa(e.Index),
		TablesVar + "=" + strings.Join(e.Addrs, ","),
		WorldSizeVar + "=" + strconv.Itoa(e.WorldSize),
		TicketVar + "=" + e.Ticket.String(),
		SocketVar + "=" + strconv.Itoa(e.Socket),
		LifeVar + "=" + strconv.Itoa(e.Life),
	}
}

// addresses reads where the servers of tables listen.
func (r *envReader) addresses() []string {
	text, ok := r.lookup(TablesVar)
	if !ok || text == "" {
		return nil
	}
	addrs := strings.Split(text, ",")
	for _, a := range addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			r.fail("%s=%q: want HOST:PORT,HOST:PORT,…, got %q", TablesVar, text, a)
		}
	}
	return addrs
}

// tableSockets are the sockets of a job's servers of tables. They stay open until the
// job ends: who connects while a server is started again waits in its socket's queue.
type tableSockets struct {
	addrs []string
	files []*os.File
}

func openTables(n int) (*tableSockets, error) {
	t := &tableSockets{}
	for i := range n {
		l, err := net.Listen("tcp", DefaultRendezvous)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("launch: a socket for server of tables %d: %w", i, err)
		}
		t.addrs = append(t.addrs, l.Addr().String())
		f, err := l.(*net.TCPListener).File() // another descriptor of the same socket
		_ = l.Close()
		if err != nil {
			t.close()
			return nil, fmt.Errorf("launch: the socket of server of tables %d: %w", i, err)
		}
		t.files = append(t.files, f)
	}
	return t, nil
}

func (t *tableSockets) close() { closeAll(t.files) }

// newTable is the process of a server of tables.
func (j *job) newTable(number int) *process {
	i := number - j.members()
	p := &process{rank: number, server: -1, table: i, tail: tail{max: j.cfg.TailLines}}
	env := TableEnv{Index: i, Addrs: j.tables.addrs, WorldSize: j.cfg.N, Ticket: j.cfg.Ticket, Socket: socketNumber, Life: lifeNumber}
	p.run(j.programs[2], j.cfg.TableCommand, append(j.cfg.environment(), env.Strings()...))
	p.cmd.ExtraFiles = []*os.File{j.tables.files[i]}
	if j.procs != nil && number < len(j.procs) {
		p.restarts = j.procs[number].restarts + 1
	}
	return p
}

// tableEnded starts a server of tables that was lost again, and says so; false: it has ended
// well, or may not be started again.
func (j *job) tableEnded(p *process) bool {
	if p.how == "" {
		return false
	}
	if p.restarts >= j.cfg.TableRestarts {
		j.lose(p)
		j.coordinator.MarkServerLost(p.table, j.tables.addrs[p.table], p.why())
		return false
	}
	j.cfg.Report(fmt.Sprintf("%s; it is started again (%d of %d)", p.loss(), p.restarts+1, j.cfg.TableRestarts))
	err := j.onOneThread(func() error {
		again, err := j.start(p.rank)
		if err == nil {
			j.procs[p.rank] = again
		}
		return err
	})
	if err != nil {
		j.cfg.Report(fmt.Sprintf("parameter server %d cannot be started again: %v", p.table, err))
		j.lose(p)
		j.coordinator.MarkServerLost(p.table, j.tables.addrs[p.table], fmt.Sprintf("%s; it cannot be started again: %v", p.why(), err))
	}
	return err == nil
}

// tableWords is how long a server of tables may take to end with words of its own, after
// the last rank has ended with an error: that may have been the server's. So long ranks have to do so
// after they were told that a server is lost.
const tableWords = 2 * time.Second

// tableLost begins the end of the clients of a server of tables, which cannot go on. Who is in the mesh was told
// why.
func (j *job) tableLost(next *escalation) {
	if j.cfg.Apart || next.begun() {
		next.hurry()
		return
	}
	next.shorten(min(tableWords, j.cfg.Grace))
}

// awaitServers begins the end of servers, now that no rank is there any more. When all have left they
// end by themselves; after a rank has failed those of tables would wait for it.
func (j *job) awaitServers(next *escalation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.first == nil || j.cfg.Tables == 0:
		next.begin(max(j.serversGrace(), j.cfg.TableGrace))
	case j.first.killed() || j.first.table >= 0:
		next.hurry() // no other server has more to say
	default:
		next.shorten(min(tableWords, j.cfg.Grace))
	}
}

// spareTables kills all but servers of tables that may take longer than others, once; false: there are
// none.
func (j *job) spareTables(next *escalation) bool {
	left := j.cfg.TableGrace - termGrace
	if next.spare || left <= 0 || !slices.ContainsFunc(j.procs, func(p *process) bool { return p.table >= 0 && p.alive() }) {
		return false
	}
	for _, p := range j.procs {
		if p.table < 0 {
			p.signal(syscall.SIGKILL)
		}
	}
	next.spare, next.step = true, 2
	next.timer.Reset(left)
	return true
}

// failedTable is a server of tables that has ended the job by failing, nil where none has, or a rank that
// was killed has. Ranks fail when a server does, and some of them before it has ended. j.mu is held.
func (j *job) failedTable() *process {
	if j.first != nil && j.first.table < 0 && j.first.killed() {
		return nil
	}
	for _, p := range j.procs {
		if p.table >= 0 && p.how != "" && !p.signalled() {
			return p
		}
	}
	return nil
}

// lose notes a process whose end is that of the job.
func (j *job) lose(p *process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		j.first = p
	}
}
