// Package trainjobtest has a status server like Kubeflow Trainer's, for tests.
package trainjobtest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/launch/extenv"
)

// Status is a request decoded by published names; deploy/check decodes it into the Go type.
type Status struct {
	ProgressPercentage        *int32
	EstimatedRemainingSeconds *int32
	Metrics                   []struct{ Name, Value string }
	LastUpdatedTime           string
}

// Read decodes a request strictly, and checks the published limits.
func Read(t testing.TB, body []byte) Status {
	t.Helper()
	var request struct{ TrainerStatus *Status }
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil || d.Decode(new(any)) != io.EOF || request.TrainerStatus == nil {
		t.Fatalf("%v: %s", err, body)
	}
	s := request.TrainerStatus
	if at, err := time.Parse(time.RFC3339, s.LastUpdatedTime); err != nil || at.IsZero() {
		t.Errorf("at %q: %v", s.LastUpdatedTime, err)
	}
	if n := s.ProgressPercentage; n != nil && (*n < 0 || *n > 100) {
		t.Errorf("%d %%", *n)
	}
	if n := s.EstimatedRemainingSeconds; n != nil && *n < 0 {
		t.Errorf("%d s left", *n)
	}
	for _, m := range s.Metrics {
		if len(m.Name) < 1 || len(m.Name) > 64 || len(m.Value) < 1 || len(m.Value) > 64 {
			t.Errorf("metric %q is %q", m.Name, m.Value)
		}
	}
	if len(s.Metrics) > 256 || len(body) > 1<<16 {
		t.Errorf("%d metrics, %d bytes", len(s.Metrics), len(body))
	}
	return *s
}

// Server is a status server with a separate authority.
type Server struct {
	*httptest.Server
	// Where is the server's address for a pod, with the token "first".
	Where extenv.StatusServer

	mu     sync.Mutex
	tokens []string
	bodies [][]byte
}

// Path is the path of the requests.
const Path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs/mnist/status"

// New starts a server until the test ends. answer handles requests; nil means status 200.
func New(t *testing.T, answer http.HandlerFunc) *Server {
	t.Helper()
	s := new(Server)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != "POST" || r.URL.Path != Path || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s, %v, %v", r.Method, r.URL, r.Header, err)
		}
		s.mu.Lock()
		s.tokens, s.bodies = append(s.tokens, r.Header.Get("Authorization")), append(s.bodies, body)
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	authority, certificate := certified(t)
	s.Server.TLS, s.Server.Config.ErrorLog = &tls.Config{Certificates: []tls.Certificate{certificate}}, log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	s.Where = extenv.StatusServer{URL: s.URL + Path, CACert: filepath.Join(dir, "ca.crt"), Token: filepath.Join(dir, "token")}
	Write(t, s.Where.CACert, authority)
	Write(t, s.Where.Token, "first\n")
	return s
}

// Authority returns a new authority, as PEM.
func Authority(t *testing.T) string {
	authority, _ := certified(t)
	return authority
}

// certified returns a new authority, as PEM, with a certificate for 127.0.0.1.
func certified(t *testing.T) (authority string, _ tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(c, by *x509.Certificate) *x509.Certificate {
		c.SerialNumber, c.NotAfter, c.BasicConstraintsValid = big.NewInt(1), time.Now().Add(time.Hour), true
		der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		out, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	root = sign(root, root)
	leaf := sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, root)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})), tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
}

// Write writes a file of a pod.
func Write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Took returns the token headers and the bodies of all requests.
func (s *Server) Took() (tokens []string, bodies [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens, s.bodies
}
