package doctor

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// Another interface that does clearly more than the one that jobs take is worth a flag; one that is not reached is told, and no fault.
func TestCompare(t *testing.T) {
	chosen := speed{RoundTrip: time.Millisecond, To: 1e8, From: 1e8}
	fast := tried{route: route{"ib0", "10.1.0.2:5"}, speed: speed{RoundTrip: time.Microsecond, To: 1e9, From: 8e8}}
	same := tried{route: route{"eth1", "10.2.0.2:5"}, speed: chosen}
	gone := tried{route: route{"docker0", "172.17.0.1:5"}, err: errors.New("refused")}
	for _, c := range []struct {
		all  []tried
		want string
	}{
		{[]tried{same, gone}, "ok    b: other interfaces: eth1 (10.2.0.2) is reached: 1ms there and back, 0.8 Gbit/s to it, 0.8 Gbit/s from it; docker0 (172.17.0.1) is not reached from here"},
		{[]tried{fast}, "warn  b: other interfaces: ib0 (10.1.0.2) is reached: 1µs there and back, 8 Gbit/s to it, 6.4 Gbit/s from it\n" +
			"      jobs take another way, on which bytes take 8 times as long as by ib0\n      mend: --interface ib0, where all hosts call it so"},
	} {
		if got := compare("b", chosen, c.all).words(); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}

// Every address at which a host listens is tried.
func TestTry(t *testing.T) {
	leakcheck.Check(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &remoteHost{ticket: transport.NewTicket(), hostReport: hostReport{Others: []route{{"a", l.Addr().String()}, {"b", "127.0.0.1:1"}}}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); serve(ctx, l, "1", p.ticket, transport.TLSOff) }()
	got := p.try(ctx, "1")
	if len(got) != 2 || got[0].err != nil || got[0].speed.To <= 0 || got[1].err == nil {
		t.Errorf("%+v", got)
	}
	cancel()
	_ = l.Close()
	<-done
	for _, w := range otherAddresses(net.IPv4(127, 0, 0, 1)) {
		if ip := net.ParseIP(w.Addr); ip == nil || ip.IsLoopback() || w.Interface == "" {
			t.Errorf("%+v", w)
		}
	}
}

func TestParseHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("a slots=2\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := parseHosts("@" + file); err != nil || len(got) != 2 || got[1].Name != "b" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseHosts("@" + file + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("a slots=x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := parseHosts("@" + file); err == nil || !strings.HasPrefix(err.Error(), file+": ") {
		t.Error(err)
	}
}

// A member of etcd that is not well, or that is none, is told; while another one is well jobs meet.
func TestEtcd(t *testing.T) {
	leakcheck.Check(t)
	member := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/health" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = w.Write([]byte(text))
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	well, ill, none := member(`{"health":"true","reason":""}`), member(`{"health":"false","reason":"NOSPACE"}`), member("<html>")
	check := func(rendezvous string, want ...string) {
		t.Helper()
		found, err := etcd(context.Background(), rendezvous)
		if err != nil || len(found) != len(want) {
			t.Fatalf("%v, %v", found, err)
		}
		for i, f := range found {
			if !strings.HasPrefix(f.words(), want[i]) {
				t.Errorf("%s\nwant\n%s", f.words(), want[i])
			}
		}
	}
	check("etcd://"+well+"/job", "ok    etcd at "+well+": it is well, and answers within ")
	check("etcd://"+well+","+ill+"/job", "ok    etcd at ", "warn  etcd at "+ill+": it is not well: NOSPACE\n      jobs meet by the other members")
	check("etcd://"+none+",127.0.0.1:1/job", "bad   etcd at "+none+": what answers there is no etcd: 200 OK\n      ranks that meet there do not find each other\n      mend: see whether", "bad   etcd at 127.0.0.1:1: ")
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	check("etcds://me@"+s.Listener.Addr().String()+"/job?cacert=/x", "ok    etcd at "+s.Listener.Addr().String()+": it speaks TLS, and answers within ")
	check("etcds://"+well+"/job", "bad   etcd at ")
	for _, wrong := range []string{"/shared/file", "h:1", "etcd://h:x y:z@/"} {
		if _, err := etcd(context.Background(), wrong); err == nil || strings.Contains(err.Error(), "z@") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
