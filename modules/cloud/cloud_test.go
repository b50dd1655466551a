package cloud_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/ringo-ml/ringo/internal/remote/store"
	"github.com/ringo-ml/ringo/internal/remote/store/storetest"
	"github.com/ringo-ml/ringo/modules/cloud"
)

// serveS3 serves S3's protocol on this host, with a bucket named jobs, and returns what stands behind ? in URLs of it.
func serveS3(t *testing.T, wrap func(http.Handler) http.Handler) (query string) {
	t.Helper()
	back := s3mem.New()
	if err := back.CreateBucket("jobs"); err != nil {
		t.Fatal(err)
	}
	h := gofakes3.New(back).Server()
	if wrap != nil {
		h = wrap(h)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
}

func open(t *testing.T, text string) store.Store {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cloud.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestS3(t *testing.T) {
	query := serveS3(t, nil)
	storetest.Run(t, open(t, "s3://jobs/mnist/run"+query))
	other := open(t, "s3://jobs/mnist/run2"+query) // a prefix ends with its folder
	if err := other.Write(t.Context(), "a", strings.NewReader("b"), 1); err != nil {
		t.Fatal(err)
	}
	if all, err := other.List(t.Context()); err != nil || len(all) != 1 || other.String() != "s3://jobs/mnist/run2" {
		t.Errorf("%v, %v, %v", all, err, other)
	}
}
