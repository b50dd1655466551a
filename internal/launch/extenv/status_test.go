package extenv

import (
	"fmt"
	"strings"
	"testing"
)

// All three variables name the server, none means that there is none, and anything else is an error that names what is wrong.
func TestStatusServer(t *testing.T) {
	env := func(url string) map[string]string {
		return map[string]string{statusURL: url, statusCA: "/k/ca.crt", statusToken: "/k/token"}
	}
	const wanted = ": want https://HOST:PORT/PATH, without a user"
	for _, c := range []struct {
		env   map[string]string
		found bool
		err   string
	}{
		{nil, false, "<nil>"},
		{env("https://trainer.kubeflow:8082/apis/x"), true, "<nil>"},
		{map[string]string{statusURL: "https://h/p"}, true, statusCA + " is not set\n" + statusToken + " is not set"},
		{map[string]string{statusToken: "/k/token"}, true, statusURL + " is not set\n" + statusCA + " is not set"},
		{env("http://h/p"), true, statusURL + `="http://h/p"` + wanted},
		{env("h:8082/p"), true, statusURL + `="h:8082/p"` + wanted},
		{env("https:///p"), true, statusURL + `="https:///p"` + wanted},
		{env("https://u:p@h/p"), true, statusURL + `="https://u:p@h/p"` + wanted},
	} {
		server, found, err := Status(func(name string) (string, bool) { v, is := c.env[name]; return v, is })
		want := StatusServer{c.env[statusURL], c.env[statusCA], c.env[statusToken]}
		if server != want || found != c.found || strings.ReplaceAll(fmt.Sprint(err), `\"`, `"`) != c.err {
			t.Errorf("%v: %+v, %v, %v\nwant %+v, %v, %s", c.env, server, found, err, want, c.found, c.err)
		}
	}
}
