package etcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous/rendezvoustest"
)

func TestSuite(t *testing.T) {
	s := newServer(t, "http")
	rendezvoustest.Run(t, func(_ *testing.T, name string) rendezvous.Backend { return s.place("suite/"+name, leaseTTL) }, true)
}

func TestParse(t *testing.T) {
	for location, want := range map[string]string{
		"etcd://a:1,b:2/jobs/mnist":                         "",
		"etcds://a:1/k?cacert=/ca.pem":                      "",
		"etcds://ann@a:1/k?cert=/c&key=/k&password-file=/p": "",
		"etcd://a:1":                        "no key behind the hosts",
		"etcd://a:1//":                      "no key behind the hosts",
		"etcd://a/k":                        `"a": want HOST:PORT`,
		"etcd://a:1,:2/k":                   `":2": want HOST:PORT`,
		"http://a:1/k":                      "want etcd://HOST:PORT/KEY",
		"etcd://a:1/k?cacert=/ca.pem":       "certificates are for TLS",
		"etcds://a:1/k?cacert=ca.pem":       "cacert=ca.pem: want the absolute path",
		"etcds://a:1/k?cacert=/a&cacert=/b": "cacert=/a,/b: want the absolute path of one file",
		"etcds://a:1/k?cert=/c":             "cert and key go together",
		"etcds://a:1/k?password=abc":        `"password": known are cacert, cert, key, password-file`,
		"etcd://ann@a:1/k?password-file=/p": "a password would be sent in the clear",
		"etcds://ann@a:1/k":                 "a user and password-file go together",
		"etcds://a:1/k?%zz":                 "behind ?: invalid URL escape",
	} {
		a, err := parse(location)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", location, err, want)
		}
		if strings.Contains(a.shown, "?") {
			t.Errorf("%s is shown as %s", location, a.shown)
		}
	}
	a, err := parse("etcds://ann@a:1,b:2/jobs/mnist?cacert=/ca.pem&cert=/c&key=/k&password-file=/p")
	if err != nil || a.user != "ann" || a.key != "jobs/mnist" || strings.Join(a.endpoints, " ") != "https://a:1 https://b:2" || a.files[keyWord] != "/k" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := parse("etcd://a/?cert=/c"); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("not all faults at once: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("etcds://ann@a:1,b:2/jobs/mnist?cacert=/ca.pem&cert=/c&key=/k&password-file=/p")
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := parse(text); err == nil && (a.key == "" || len(a.endpoints) == 0) {
			t.Errorf("%q: %+v", text, a)
		}
	})
}

// No ticket is posted, and a server that does not answer is named.
func TestFaults(t *testing.T) {
	p, err := Open("etcd://" + freePort(t) + "/k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := p.Publish(ctx, rendezvous.Endpoint{Address: "h:1", Ticket: "ab"}); err == nil || !strings.Contains(err.Error(), "a ticket is not posted") {
		t.Error(err)
	}
	if _, err := p.Publish(ctx, rendezvous.Endpoint{Address: "h:1"}); err == nil || !strings.Contains(err.Error(), "rank 0 cannot tell the others where it listens: no answer in time: is it running") {
		t.Error(err)
	}
	if _, err := p.Lookup(ctx, ""); err == nil || !strings.Contains(err.Error(), "looking for rank 0: no answer in time") {
		t.Error(err)
	}
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := Open("etcds://a:1/k?cacert=" + missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
}

// A key whose rank 0 lives is another's; when that one has died without a word, the next one gets it.
func TestHeld(t *testing.T) {
	s := newServer(t, "http")
	const ttl = 2
	h := &holder{place: s.place("job", ttl), text: string(rendezvous.Endpoint{Address: "h:1"}.Encode())}
	var err error
	if h.client, err = h.place.client(); err != nil {
		t.Fatal(err)
	}
	defer h.client.Close()
	if err := h.take(t.Context()); err != nil { // and nobody renews it
		t.Fatal(err)
	}
	next := s.place("job", ttl)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := next.Publish(ctx, rendezvous.Endpoint{Address: "h:2"}); err == nil || !strings.Contains(err.Error(), "an earlier start of this one, at h:1: give each job a key of its own") {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	withdraw, err := next.Publish(ctx, rendezvous.Endpoint{Address: "h:2"})
	if err != nil {
		t.Fatal(err)
	}
	defer withdraw()
	if n, err := next.Lookup(t.Context(), ""); err != nil || n.Address != "h:2" {
		t.Errorf("%+v, %v", n, err)
	}
}

// Etcd is killed and started again, cut off for longer than a lease lasts, and loses the lease: the notice is there again.
func TestHeals(t *testing.T) {
	s := newServer(t, "http")
	const ttl = 1
	p := s.place("job", ttl)
	withdraw, err := p.Publish(t.Context(), rendezvous.Endpoint{Address: "h:1"})
	if err != nil {
		t.Fatal(err)
	}
	back := func(after string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			n, err := s.place("job", ttl).Lookup(t.Context(), "")
			if err == nil && n.Address == "h:1" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("after %s: %+v, %v", after, n, err)
			}
		}
	}
	s.kill()
	s.start()
	back("a restart")
	s.freeze()
	time.Sleep(3 * ttl * time.Second)
	s.thaw()
	back("silence")
	client, err := p.client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Delete(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	leases, err := client.Leases(t.Context())
	for _, l := range leases.Leases {
		_, err = client.Revoke(t.Context(), l.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	back("a lost lease")
	withdraw()
	if n, err := p.Lookup(t.Context(), ""); err == nil {
		t.Errorf("%+v is left", n)
	}
}

// TLS with certificates of both ends, and a user with a password.
func TestCredentials(t *testing.T) {
	dir := certificates(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	s := newServer(t, "https", "--cert-file", file("own.pem"), "--key-file", file("own.key"), "--trusted-ca-file", file("ca.pem"), "--client-cert-auth")
	base := s.client + "/job?cacert=" + file("ca.pem") + "&cert=" + file("own.pem") + "&key=" + file("own.key")
	open := func(location string) *Backend {
		p, err := Open(location)
		if err != nil {
			t.Fatal(err)
		}
		return p.(*Backend)
	}
	p := open("etcds://" + base)
	meets(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if n, err := open("etcds://"+s.client+"/job?cacert="+file("ca.pem")).Lookup(ctx, ""); err == nil {
		t.Errorf("without a certificate: %+v", n)
	}
	admin, err := p.client()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := users(t.Context(), admin, "ann", "s3cret"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("password"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	meets(t, open("etcds://ann@"+base+"&password-file="+file("password")))
	if err := os.WriteFile(file("password"), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := open("etcds://ann@"+base+"&password-file="+file("password")).Lookup(t.Context(), ""); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong password: %+v, %v", n, err)
	}
	if err := os.Chmod(file("password"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("etcds://ann@" + base + "&password-file=" + file("password")); !errors.As(err, new(*rendezvous.UnsafeError)) {
		t.Errorf("a password that others may read: %v", err)
	}
}

func meets(t *testing.T, p *Backend) {
	t.Helper()
	withdraw, err := p.Publish(t.Context(), rendezvous.Endpoint{Address: "h:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer withdraw()
	if n, err := p.Lookup(t.Context(), ""); err != nil || n.Address != "h:1" {
		t.Errorf("%+v, %v", n, err)
	}
}

// users has etcd ask for passwords: of root, and of a user who may use the key alone.
func users(ctx context.Context, c *clientv3.Client, name, password string) error {
	_, err1 := c.UserAdd(ctx, "root", "root")
	_, err2 := c.UserGrantRole(ctx, "root", "root")
	_, err3 := c.RoleAdd(ctx, "job")
	_, err4 := c.RoleGrantPermission(ctx, "job", "job", "", clientv3.PermissionType(clientv3.PermReadWrite))
	_, err5 := c.UserAdd(ctx, name, password)
	_, err6 := c.UserGrantRole(ctx, name, "job")
	_, err7 := c.AuthEnable(ctx)
	return errors.Join(err1, err2, err3, err4, err5, err6, err7)
}
