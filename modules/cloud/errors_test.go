package cloud_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/remote"
	"github.com/ringo-ml/ringo/modules/cloud"
)

// refusing answers as S3 does where it refuses, with the bucket's name as the code.
func refusing(w http.ResponseWriter, r *http.Request) {
	code, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	status := http.StatusForbidden
	if code == "PermanentRedirect" {
		status = http.StatusMovedPermanently
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>What the cloud says.</Message><RequestId>1</RequestId></Error>`, code)
}

// What a person reads who names a bucket that is not there, or that refuses: a line that says what to do, at once.
func TestErrors(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(refusing))
	t.Cleanup(server.Close)
	s3 := serveS3(t, nil)
	at := func(address string) string {
		return "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape("http://"+address)
	}
	refuses, none := at(strings.TrimPrefix(server.URL, "http://")), freeport.Address(t)
	for _, c := range []struct{ name, url, want string }{
		{"bucket", "s3://missing/run" + s3, "s3://missing/run: looking what is there: there is no such bucket or container: make it, or mend its name (NoSuchBucket: "},
		{"key", "s3://InvalidAccessKeyId" + refuses, "s3://InvalidAccessKeyId: looking what is there: these credentials are not accepted (InvalidAccessKeyId: What the cloud says.)"},
		{"signature", "s3://SignatureDoesNotMatch/run" + refuses, "s3://SignatureDoesNotMatch/run: looking what is there: these credentials are not accepted (SignatureDoesNotMatch: What the cloud says.)"},
		{"permission", "s3://AccessDenied/run" + refuses, "s3://AccessDenied/run: looking what is there: these credentials may not do it: listing, reading, writing and removing must be allowed (AccessDenied: What the cloud says.)"},
		{"region", "s3://PermanentRedirect/run" + refuses, "s3://PermanentRedirect/run: looking what is there: the bucket is in another region: name that (?region=R) (PermanentRedirect: What the cloud says.)"},
		{"unknown", "s3://StrangeThing/run" + refuses, "s3://StrangeThing/run: looking what is there: StrangeThing: What the cloud says."},
		{"nobody", "s3://b/run" + at(none), "s3://b/run: looking what is there: " + none + " cannot be reached: connect: connection refused"},
		{"parameter", "s3://b/run?bad=1", `s3://b/run: unknown query parameter "bad"`},
	} {
		begun := time.Now()
		if got := looked(t, c.url); !strings.HasPrefix(got, c.want) || strings.HasSuffix(c.want, ")") && got != c.want || strings.Contains(got, "\n") {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if took := time.Since(begun); took > time.Minute { // the client tries a few times, at random intervals of seconds
			t.Errorf("%s: told after %v", c.name, took)
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		_ = os.Unsetenv(name) // serveS3 has them come back
	}
	if got := looked(t, "s3://jobs/run"+s3); got != "s3://jobs/run: looking what is there: no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws (?profile=P)" {
		t.Error(got)
	}
}

// looked is what a look at a store says that is wrong.
func looked(t *testing.T, text string) string {
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cloud.Open(t.Context(), u)
	if err != nil {
		return err.Error()
	}
	defer s.Close()
	m := &remote.Mirror{Store: s, Patience: remote.Patience{Tries: 1}}
	if _, _, err = m.List(t.Context()); err == nil {
		return ""
	}
	return err.Error()
}
