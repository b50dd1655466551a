package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
)

// address is a parsed rendezvous in etcd.
type address struct {
	shown     string // rendezvous without the parameters
	endpoints []string
	key       string
	user      string
	files     map[string]string // absolute paths, by parameter
}

// Parameters of a rendezvous, with names as in etcdctl. Each value is the absolute path of a file.
const (
	caWord       = "cacert"
	certWord     = "cert"
	keyWord      = "key"
	passwordWord = "password-file"
)

// parse parses etcd://[USER@]HOST:PORT[,HOST:PORT...]/KEY[?PARAMETER=FILE&...] and returns all
// errors.
func parse(location string) (a address, err error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	a.shown, _, _ = strings.Cut(location, "?")
	rest, secure := strings.CutPrefix(location, rendezvous.EtcdTLS)
	scheme := "https://"
	if !secure {
		var ok bool
		if rest, ok = strings.CutPrefix(location, rendezvous.Etcd); !ok {
			return a, fmt.Errorf("etcd: %q: want %sHOST:PORT/KEY, or %s… under TLS", a.shown, rendezvous.Etcd, rendezvous.EtcdTLS)
		}
		scheme = "http://"
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, key, _ := strings.Cut(rest, "/")
	if a.key = key; strings.Trim(key, "/") == "" {
		fault("no key behind the hosts: want %sHOST:PORT/KEY, with a key of the job's own", rendezvous.Etcd)
	}
	if user, after, ok := strings.Cut(hosts, "@"); ok {
		a.user, hosts = user, after
	}
	for h := range strings.SplitSeq(hosts, ",") {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" || port == "" {
			fault("%q: want HOST:PORT of a member of etcd, several with commas", h)
		}
		a.endpoints = append(a.endpoints, scheme+h)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		fault("behind ?: %w", err)
	}
	known := []string{caWord, certWord, keyWord, passwordWord}
	a.files = map[string]string{}
	for word, of := range values {
		switch {
		case !slices.Contains(known, word):
			fault("%q: known are %s", word, strings.Join(known, ", "))
		case len(of) != 1 || !filepath.IsAbs(of[0]):
			fault("%s=%s: want the absolute path of one file", word, strings.Join(of, ","))
		default:
			a.files[word] = of[0]
		}
	}
	a.together(secure, fault)
	if err := errors.Join(faults...); err != nil {
		return a, fmt.Errorf("etcd: %s: %w", a.shown, err)
	}
	return a, nil
}

// together reports conflicting parts of an address.
func (a *address) together(secure bool, fault func(string, ...any)) {
	if (a.files[certWord] == "") != (a.files[keyWord] == "") {
		fault("%s and %s go together: give both, or neither", certWord, keyWord)
	}
	if !secure && a.files[caWord]+a.files[certWord]+a.files[keyWord] != "" {
		fault("certificates are for TLS: %s in place of %s", rendezvous.EtcdTLS, rendezvous.Etcd)
	}
	if (a.user == "") != (a.files[passwordWord] == "") {
		fault("a user and %s go together: USER@HOST:PORT and %s=FILE, or neither", passwordWord, passwordWord)
	}
	if a.user != "" && !secure {
		fault("a password would be sent in the clear: %s in place of %s", rendezvous.EtcdTLS, rendezvous.Etcd)
	}
}

// config returns the config of a client, and reads the address's files.
func (a *address) config() (c clientv3.Config, err error) {
	c.Endpoints, c.Username = a.endpoints, a.user
	if a.user != "" {
		if c.Password, err = rendezvous.Secret(a.files[passwordWord]); err != nil {
			return c, fmt.Errorf("etcd: %s: the password: %w", a.shown, err)
		}
	}
	if strings.HasPrefix(a.endpoints[0], "https://") {
		info := transport.TLSInfo{TrustedCAFile: a.files[caWord], CertFile: a.files[certWord], KeyFile: a.files[keyWord]}
		if c.TLS, err = info.ClientConfig(); err != nil {
			return c, fmt.Errorf("etcd: %s: certificates: %w", a.shown, err)
		}
	}
	return c, nil
}
