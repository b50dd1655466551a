package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pageCase is one path of a server's administration, to which a browser is made to send requests by a page
// of strangers.
type pageCase struct {
	Method, Path string
	Requests     []hostileRequest
}

// hostileRequest is what one request is like.
type hostileRequest struct {
	Kind  string
	Text  string // with HOST where the server's address stands, and TOKEN
	Times int    // how often its BODY of 64 KiB is sent behind it
}

// adminPaths are the paths, and one that is none.
var adminPaths = []struct{ method, path string }{{"GET", "/servers/0/healthz"}, {"GET", "/servers/0/stats"}, {"POST", "/servers/0/save"}, {"POST", "/servers/0/shrink"}, {"GET", "/"}}

// pageRequests is how many requests each path gets.
const pageRequests = 30

// drawPage draws the requests to one path: all of the list in turn.
func drawPage(rng *rand.Rand, number int) pageCase {
	at := adminPaths[number%len(adminPaths)]
	c := pageCase{Method: at.method, Path: at.path}
	for i := range pageRequests {
		c.Requests = append(c.Requests, drawRequest(rng, at.method, at.path, i))
	}
	return c
}

const stranger = "evil.example"

// ask is the text of a request.
func ask(method, target, host string, headers ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", method, target, host, strings.Join(append(headers, ""), "\r\n"))
}

// drawRequest draws one, of the kinds in turn.
func drawRequest(rng *rand.Rand, method, path string, i int) hostileRequest {
	kinds := []func() hostileRequest{
		func() hostileRequest {
			return hostileRequest{Kind: "a foreign Host", Text: ask(method, path, pick(rng, stranger, stranger+":80", "127.0.0.1."+stranger, "localhost."+stranger, "[::1]."+stranger, "10.0.0.1", "HOST."+stranger))}
		},
		func() hostileRequest {
			host := stranger + ":" + pick(rng, "80", "8090")
			return hostileRequest{Kind: "DNS rebinding", Text: ask(method, path, host, "Origin: http://"+host, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Referer: http://"+host+"/")}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "a foreign Origin", Text: ask(method, path, "HOST", "Origin: "+pick(rng, "http://"+stranger, "https://"+stranger, "null", "file://"), "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")}
		},
		func() hostileRequest {
			kind := pick(rng, "application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x")
			return hostileRequest{Kind: "a form", Text: ask("POST", path, "HOST", "Origin: http://"+stranger, "Content-Type: "+kind, "Content-Length: 9") + "days=1000"}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "a form of an old browser", Text: ask("POST", path, "HOST", "Referer: http://"+stranger, "Content-Type: text/plain", "Content-Length: 9") + "days=1000"}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "a large header", Text: ask(method, path, "HOST", "X-Large: "+strings.Repeat("x", 2<<20))}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "a large body", Times: 256, Text: ask("POST", path, "HOST", "Content-Type: application/x-www-form-urlencoded", "Content-Length: 16777216")}
		},
		func() hostileRequest {
			value := pick(rng, "days=-1", "days=0", "days=2147483648", "days=99999999999999999999", "days=1e3", "days=%00", "delta=maybe", "delta="+strings.Repeat("1", 5000), "days=1;days=2000000000")
			return hostileRequest{Kind: "parameters out of bounds", Text: ask("POST", path+"?"+value, "HOST", "TOKEN")}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "another method", Text: ask(pick(rng, "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "NONSENSE", other(method)), path, "HOST")}
		},
		func() hostileRequest {
			trick := pick(rng, "/"+path, "/."+path, path+"/", path+"/..%2f..%2fetc/passwd", path+"%00", "/%2e%2e"+path, path+"/../../shrink", "http://"+stranger+path, strings.ToUpper(path)+"x")
			return hostileRequest{Kind: "another path", Text: ask("POST", trick, "HOST")}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "two Hosts", Text: ask(method, path, "HOST", "Host: "+stranger)}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "no Host", Text: fmt.Sprintf("%s %s HTTP/%s\r\n\r\n", method, path, pick(rng, "1.0", "1.1"))}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "a guessed token", Text: ask("POST", path+"?token=0", "HOST", "Authorization: Bearer "+strings.Repeat("0", 64))}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "a preflight", Text: ask("OPTIONS", path, "HOST", "Origin: http://"+stranger, "Access-Control-Request-Method: POST", "Access-Control-Request-Private-Network: true")}
		},
		func() hostileRequest {
			return hostileRequest{Kind: "two lengths", Text: ask("POST", path, "HOST", "Content-Length: 4", "Transfer-Encoding: chunked, chunked") + "0\r\n\r\n" + ask(method, path, stranger)}
		},
	}
	return kinds[i%len(kinds)]()
}

// other is a method that a path does not have.
func other(method string) string {
	if method == "GET" {
		return "POST"
	}
	return "GET"
}

func (c pageCase) String() string {
	return fmt.Sprintf("%d requests of a hostile page to %s %s", len(c.Requests), c.Method, c.Path)
}

// request sends the text of a request and returns the status and the body of the answer. A
// connection that is closed without an answer has status 0.
func request(address, text string) (int, string, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, text) }() // the answer may come before all is read
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		return 0, "", nil
	}
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return 0, "", fmt.Errorf("no status line: %q", line)
	}
	status, err := strconv.Atoi(fields[1])
	rest, _ := io.ReadAll(io.LimitReader(reader, 1<<20)) // as far as it comes
	_, body, _ := strings.Cut(string(rest), "\r\n\r\n")
	return status, body, err
}

// pageJob is a job with two tables' worth of clicks that trains until it is ended.
func pageJob(dir string) []string {
	return []string{"train", "ctr-dnn", "--data", "synthetic", "--train-limit", "640", "--eval-limit", "64", "--batch", "32", "--set", "data.table-rows=1000", "--np", "2", "--threads", "1",
		"--epochs", "1000000", "--servers", "1", "--sync", "async", "--set", "ps.delete-after-unseen-days=400", "--http", "127.0.0.1:0", "--ps-durability", "checkpoint", "--ps-dir", dir + "/servers"}
}

var (
	dashboardAt = regexp.MustCompile(`dashboard: http://([^/]+)/(\w+)/`)
	rowsCount   = regexp.MustCompile(`"rows": (\d+)`)
	rowsGone    = regexp.MustCompile(`"deleted_rows": (\d+)`)
	secondEpoch = regexp.MustCompile(`^epoch +2/`)
)

// admin is a server that is asked.
type admin struct {
	address string
	token   string // a header
	dir     string // of the servers
}

// state is what no page may change.
func (a admin) state() (string, error) {
	status, body, err := request(a.address, ask("GET", "/servers/0/stats", a.address, a.token))
	if err != nil || status != 200 {
		return "", fmt.Errorf("an honest GET /stats: status %d, %w", status, err)
	}
	saved, _ := filepath.Glob(a.dir + "/server-0/checkpoints/*")
	return fmt.Sprintf("%s, %s, %d checkpoints", rowsCount.FindString(body), rowsGone.FindString(body), len(saved)), nil
}

// admin waits until a job's server can be asked.
func (j *job) admin(dir string) (admin, error) {
	a := admin{dir: dir + "/servers"}
	ready := j.await(startLimit, func() bool {
		if m := dashboardAt.FindStringSubmatch(j.errs.String()); m != nil {
			a.address, a.token = m[1], "Authorization: Bearer "+m[2]
		}
		return a.address != "" && j.says(secondEpoch) // all rows are there: none comes any more
	})
	if !ready {
		return a, fmt.Errorf("the server is not up: %s", j.errs.String())
	}
	return a, nil
}

func (c pageCase) run(s *setup, dir string) verdict {
	j, err := s.start(dir, pageJob(dir))
	if err != nil {
		return broken(err)
	}
	defer j.end()
	a, err := j.admin(dir)
	if err != nil {
		return broken(err)
	}
	before, err := a.state()
	if err != nil {
		return broken(err)
	}
	var v verdict
	for i, r := range c.Requests {
		status, _, err := request(a.address, r.fill(a))
		judgePage(&v, i, r, status, err)
	}
	if after, err := a.state(); err != nil || after != before {
		v.wrong("the pages changed the server from (%s) to (%s) %v", before, after, err)
	}
	c.honest(&v, a)
	if j.over() {
		v.wrong("the job has ended")
	}
	e := ending{Out: j.out.String(), Errs: j.errs.String()}
	judgeClean(&v, e)
	return v
}

// fill puts the server's address and token into a request.
func (r hostileRequest) fill(a admin) string {
	text := strings.ReplaceAll(r.Text, "HOST", a.address)
	return strings.ReplaceAll(text, "TOKEN", a.token) + strings.Repeat(strings.Repeat("x", 64<<10), r.Times)
}

// judgePage wants a request refused: with a status that blames who asked, or without an answer. A redirection is right,
// too: what it leads to refuses by itself; and so is 501, which is how net/http says that it does not know an encoding.
func judgePage(v *verdict, i int, r hostileRequest, status int, err error) {
	if err != nil {
		v.wrong("request %d (%s): %v", i, r.Kind, err)
	} else if status != 0 && status != http.StatusNotImplemented && (status < 300 || status >= 500) {
		v.wrong("request %d (%s) was answered with status %d", i, r.Kind, status)
	}
}

// honest wants what a person asks with the token to work.
func (c pageCase) honest(v *verdict, a admin) {
	for _, at := range adminPaths {
		if at.path == "/" {
			continue
		}
		headers := []string{a.token}
		if at.method == "POST" {
			headers = append(headers, "Content-Length: 0")
		}
		status, body, err := request(a.address, ask(at.method, at.path, a.address, headers...))
		if err != nil || status != 200 {
			v.wrong("an honest %s %s: status %d, %v: %s", at.method, at.path, status, err, body)
		}
	}
}
