package etcd

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a real etcd, of Debian's package etcd-server or another one in PATH.
type server struct {
	t      *testing.T
	client string // HOST:PORT
	args   []string
	cmd    *exec.Cmd
	log    bytes.Buffer
}

// newServer starts one at a free port. scheme is http or https; more are options of its own.
func newServer(t *testing.T, scheme string, more ...string) *server {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("there is no etcd: apt-get install etcd-server")
	}
	s := &server{t: t, client: freePort(t)}
	urls, peers := scheme+"://"+s.client, "http://"+freePort(t)
	s.args = append([]string{path, "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen-client-urls", urls, "--advertise-client-urls", urls,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers}, more...)
	s.start()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("etcd:\n%s", s.log.String())
		}
	})
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.client)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("etcd does not start: %v\n%s", err, s.log.String())
		}
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// freeze has the server answer nothing, as behind a link that is cut, and thaw ends that.
func (s *server) freeze() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *server) thaw()   { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// place is a key there, as a process of its own sees it.
func (s *server) place(key string, ttl int64) *Backend {
	s.t.Helper()
	p, err := Open("etcd://" + s.client + "/" + key)
	if err != nil {
		s.t.Fatal(err)
	}
	p.(*Backend).ttl = ttl
	return p.(*Backend)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// certificates makes an authority and a certificate for 127.0.0.1 with openssl, as people do, and returns their folder.
func certificates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, line := range []string{
		"req -x509 -newkey ed25519 -nodes -keyout ca.key -out ca.pem -days 1 -subj /CN=authority",
		"req -newkey ed25519 -nodes -keyout own.key -out own.csr -subj /CN=root",
		"x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -out own.pem -extfile names",
	} {
		if err := os.WriteFile(filepath.Join(dir, "names"), []byte("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("openssl", strings.Fields(line)...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Skip(fmt.Sprintf("openssl: %v\n%s", err, out))
		}
	}
	return dir
}
