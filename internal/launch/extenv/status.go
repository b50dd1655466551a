package extenv

import (
	"errors"
	"net/url"
)

// Variables of Kubeflow Trainer's TrainJobStatus, the server for a TrainJob's progress reports.
const (
	statusURL   = "KUBEFLOW_TRAINER_SERVER_URL"
	statusCA    = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
	statusToken = "KUBEFLOW_TRAINER_SERVER_TOKEN"
)

// StatusServer is the receiver of a job's progress reports.
type StatusServer struct {
	URL    string // https://HOST:PORT/PATH, target of the POST requests
	CACert string // path of the certificate authority, as PEM
	Token  string // path of a bearer token, renewed by the system
}

// Status returns the status server of this process's TrainJob; found is false without one. lookup
// is like os.LookupEnv. The error names each missing or invalid variable.
func Status(lookup func(string) (string, bool)) (server StatusServer, found bool, err error) {
	r := &reader{host: Host{Lookup: lookup}}
	if !r.any(statusURL, statusCA, statusToken) {
		return StatusServer{}, false, nil
	}
	server = StatusServer{URL: r.text(statusURL), CACert: r.text(statusCA), Token: r.text(statusToken)}
	if u, err := url.Parse(server.URL); server.URL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
		r.fail("%s=%q: want https://HOST:PORT/PATH, without a user", statusURL, server.URL)
	}
	return server, true, errors.Join(r.errs...)
}
