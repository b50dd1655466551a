package service

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/message"
)

// token is that of the tests' servers.
const token = "0123456789abcdef"

// ask sends a request that a person may make and returns the answer.
func ask(t *testing.T, h http.Handler, method, target string, change func(r *http.Request)) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5", "127.0.0.1:8090"
	r.Header.Set("Authorization", "Bearer "+token)
	if change != nil {
		change(r)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	b, err := io.ReadAll(rec.Result().Body)
	must(t, err)
	return rec.Code, string(b)
}

func TestAdmin(t *testing.T) {
	leakcheck.Check(t)
	w := start(t, 1, nil)
	var saved []bool
	var lines []string
	shrink := errors.New("nothing to shrink")
	h := w.server.Handler(Admin{
		Stats: func() any { return map[string]int{"rows": w.engine.Rows(0)} },
		Save: func(_ context.Context, delta bool) (any, string, error) {
			saved = append(saved, delta)
			return "checkpoint 7", "it is written", nil
		},
		Shrink: func(_ context.Context, days int) (any, string, error) { return days, "2 rows deleted", shrink },
		Token:  token, Report: func(line string) { lines = append(lines, line) },
	})
	expect := func(method, target string, change func(*http.Request), status int, words ...string) {
		t.Helper()
		got, body := ask(t, h, method, target, change)
		if got != status {
			t.Errorf("%s %s: status %d, want %d: %s", method, target, got, status, body)
		}
		for _, word := range words {
			if !strings.Contains(body, word) {
				t.Errorf("%s %s: %s, want it to say %s", method, target, body, word)
			}
		}
	}
	expect("GET", "/health", nil, 200, `"state": "waiting"`, `"connected": 0`, "never connected")
	expect("POST", "/save", nil, 409, "no tables yet")
	p, _ := w.join(hello(0, 1))
	p.pushes(1, 1, 5, 1, 2, 3)
	p.gets(message.TypeAck, 1)
	expect("GET", "/health", nil, 200, `"state": "up"`, `"connected": 1`, `"job": "j"`)
	expect("GET", "/stats", func(r *http.Request) { r.Header.Del("Authorization") }, 401)
	expect("GET", "/servers/0/stats", nil, 200, `"rows": 1`, `"rows_pushed": 1`, `"process": {`, `"gc_cycles": `)
	expect("POST", "/save", nil, 200, "checkpoint 7")
	expect("POST", "/save?delta=true", nil, 200, "checkpoint 7")
	expect("POST", "/save?delta=perhaps", nil, 400, "want true or false")
	expect("POST", "/shrink", nil, 500, "nothing to shrink")
	shrink = nil
	expect("POST", "/shrink", nil, 200, "1")
	expect("POST", "/shrink?days=30", nil, 200, "30")
	expect("POST", "/shrink?days=0", nil, 400, "want a number from 1")
	expect("POST", "/shrink?days=2147483648", nil, 400, "want a number from 1")
	if len(saved) != 2 || saved[0] || !saved[1] {
		t.Errorf("saved %v", saved)
	}
	expect("GET", "/save", nil, 405)
	expect("GET", "/elsewhere", nil, 404)
	expect("POST", "/save", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:5" }, 403, "own host alone")
	expect("POST", "/save", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403)
	expect("POST", "/save", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403)
	if len(saved) != 2 {
		t.Errorf("saved %v", saved)
	}
	want := []string{
		"server 0: POST /save from 127.0.0.1:5 refused: server 0 has no tables yet", "server 0: GET /stats from 127.0.0.1:5 refused: the token is missing: want a header Authorization: Bearer TOKEN, with the token that the job printed at its start",
		"server 0: POST /save from 127.0.0.1:5: it is written", "server 0: POST /save?delta=true from 127.0.0.1:5: it is written",
		`server 0: POST /save from 127.0.0.1:5 refused: delta="perhaps": want true or false`, "server 0: POST /shrink from 127.0.0.1:5 failed: nothing to shrink",
		"server 0: POST /shrink from 127.0.0.1:5: 2 rows deleted", "server 0: POST /shrink?days=30 from 127.0.0.1:5: 2 rows deleted",
		`server 0: POST /shrink from 127.0.0.1:5 refused: days="0": want a number from 1 to 36500`, `server 0: POST /shrink from 127.0.0.1:5 refused: days="2147483648": want a number from 1 to 36500`,
		"server 0: POST /save from 192.0.2.1:5 refused: orders are taken from the server's own host alone",
		"server 0: POST /save from 127.0.0.1:5 refused: a web page of another origin has sent the request",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("lines:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	w.engine.Fail(errors.New("out of luck"))
	p.failure(message.ReasonFailed, "out of luck")
	says(t, w.end(), "out of luck")
	expect("GET", "/health", nil, 503, `"state": "failed"`, "out of luck")
	h = w.server.Handler(Admin{Stats: func() any { return func() {} }})
	expect("POST", "/save", nil, 404)
	h = w.server.Handler(Admin{Save: func(context.Context, bool) (any, string, error) { panic("there is no token") }})
	expect("POST", "/save", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401)
	h = w.server.Handler(Admin{Token: token, Stats: func() any { return func() {} }})
	expect("GET", "/stats", nil, 500, "no JSON")
}

// All that is shown has a name in JSON that does not change by accident.
func TestHealthJSON(t *testing.T) {
	b, err := json.Marshal(Health{Server: 1, Servers: 2, Job: "j", State: "up", Cause: "c", Trainers: []Trainer{{Trainer: 3, Connected: 1, Left: 2, Lost: true, Disconnected: "a"}}})
	must(t, err)
	const want = `{"server":1,"servers":2,"job":"j","state":"up","cause":"c","trainers":[{"trainer":3,"connected":1,"left":2,"lost":true,"away":"a"}]}`
	if string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
}
