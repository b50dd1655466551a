// Package tune keeps what was measured of a job, and chooses by it how its gradients
// travel.
package tune
