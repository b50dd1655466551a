package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// etcd checks a rendezvous's etcd members, without credentials: only a job checks access.
func etcd(ctx context.Context, address string) ([]finding, error) {
	u, err := url.Parse(address)
	secure := strings.HasPrefix(address, rendezvous.EtcdTLS)
	if !secure && !strings.HasPrefix(address, rendezvous.Etcd) {
		return nil, fmt.Errorf("%q: want %sHOST:PORT,.../KEY: nobody listens yet at a HOST:PORT, and a file is there when rank 0 has written it", address, rendezvous.Etcd)
	}
	if err != nil {
		return nil, errors.New("it is no address: want " + rendezvous.Etcd + "HOST:PORT,.../KEY") // err may contain a password
	}
	members := strings.Split(u.Host, ",")
	found := make([]finding, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { found[i] = etcdMember(ctx, m, secure) })
	}
	all.Wait()
	for i := range found {
		if found[i].Level == bad && !allBad(found) { // another member works
			found[i].Level = warn
			found[i].Costs = "jobs meet by the other members"
		}
	}
	return found, nil
}

func allBad(found []finding) bool {
	for _, f := range found {
		if f.Level != bad {
			return false
		}
	}
	return true
}

// etcdMember checks a member and measures the response time.
func etcdMember(ctx context.Context, addr string, secure bool) finding {
	f := finding{Subject: "etcd at " + addr, Level: ok}
	ctx, cancel := context.WithTimeout(ctx, briefly)
	defer cancel()
	begun := time.Now()
	var err error
	if secure {
		err = greet(ctx, addr)
	} else {
		err = healthy(ctx, addr)
	}
	took := quantity.Duration(time.Since(begun))
	if err != nil {
		f.Found = err.Error()
		f.fails("ranks that meet there do not find each other", "see whether it runs, and is reachable from here: curl http://"+addr+"/health")
		return f
	}
	if f.Found = fmt.Sprintf("it is well, and answers within %s", took); secure {
		f.Found = fmt.Sprintf("it speaks TLS, and answers within %s; certificates and user are for a job to try", took)
	}
	return f
}

// healthy requests etcd's /health over HTTP.
func healthy(ctx context.Context, addr string) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy, like the members of a job
	answer, err := client.Do(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var says struct{ Health, Reason string }
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &says); err != nil {
		return fmt.Errorf("what answers there is no etcd: %s", answer.Status)
	}
	if says.Health != "true" {
		return fmt.Errorf("it is not well: %s", says.Reason)
	}
	return nil
}

// greet completes a TLS handshake with any certificate: no data are sent.
func greet(ctx context.Context, addr string) error {
	d := tls.Dialer{NetDialer: new(net.Dialer), Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
