package profiles

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ask asks for a page, and returns its status and text.
func ask(t *testing.T, url string, change func(*http.Request)) (status int, text string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Profiles are told to who knows the token, and to nobody else, and longer ones than other answers may take, too.
func TestServe(t *testing.T) {
	s, err := Serve("127.0.0.1:0", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if status, text := ask(t, s.URL(), nil); status != 200 || !strings.Contains(text, "goroutine") {
		t.Errorf("the index: %d, %s", status, text)
	}
	if status, text := ask(t, s.URL()+"goroutine?debug=1", nil); status != 200 || !strings.Contains(text, "profiles.TestServe") {
		t.Errorf("goroutines: %d, %s", status, text)
	}
	if status, text := ask(t, s.URL()+"profile?seconds=1", nil); status != 200 || !strings.HasPrefix(text, "\x1f\x8b") {
		t.Errorf("the processor's time: %d, %.100q", status, text)
	}
	host := strings.Split(s.URL(), "/")[2]
	for _, c := range []struct {
		what, url string
		change    func(*http.Request)
	}{
		{"no token", "http://" + host + "/" + Path, nil},
		{"another token", "http://" + host + "/ABCDEFGHIJKLMNOPQRSTUVWXYZ/" + Path, nil},
		{"another host's name", s.URL(), func(r *http.Request) { r.Host = "evil.example" }},
		{"another site's page", s.URL(), func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }},
	} {
		if status, text := ask(t, c.url, c.change); status != 403 || strings.Contains(text, "goroutine") {
			t.Errorf("%s: %d, %s", c.what, status, text)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", host); err == nil {
		_ = c.Close()
		t.Error("it listens after Close")
	}
}

func TestRefused(t *testing.T) {
	for address, want := range map[string]string{"": "HOST:PORT", "127.0.0.1:x": "HOST:PORT", "0.0.0.0:0": "of this host alone", "10.0.0.1:0": "of this host alone", "127.0.0.1:65535": "cannot listen"} {
		if s, err := Serve(address, 1); err == nil || !strings.Contains(err.Error(), want) {
			_ = s.Close()
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	s, err := Serve(":0", 0)
	if err != nil || !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("an empty host: %v, %v", s, err)
	}
	_ = s.Close()
	var none *Site
	if none.Close() != nil || new(Site).Close() != nil {
		t.Error("what was never served cannot be closed")
	}
}
