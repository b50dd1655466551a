package extenv

import (
	"errors"
	"net/url"
)

// The variables by which Kubeflow Trainer, with its feature TrainJobStatus, tells each container of a TrainJob where to say how far it is.
const (
	statusURL   = "KUBEFLOW_TRAINER_SERVER_URL"
	statusCA    = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
	statusToken = "KUBEFLOW_TRAINER_SERVER_TOKEN"
)

// StatusServer is who wants to be told how far a job is.
type StatusServer struct {
	URL    string // https://HOST:PORT/PATH, to which is posted
	CACert string // the path of a file with the authority of its certificate, as PEM
	Token  string // the path of a file with a bearer token, which the system renews
}

// Status returns the status server of the TrainJob to which this process belongs; found is false where there is none. lookup is like
// os.LookupEnv. The error names each variable that is missing or wrong.
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
