package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
)

// The test binary is also the example itself, and a server.
const roleVar = "TOWERS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(roleVar) == "":
		os.Exit(m.Run())
	case len(os.Args) > 1:
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		main()
	}
	os.Exit(0)
}

// serve is `ringo server`, as a launcher starts it.
func serve() error {
	env, _, err := launch.TableFromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	defer env.SendHeartbeats(0)()
	l, err := net.FileListener(os.NewFile(uintptr(env.Socket), "socket"))
	if err != nil {
		return err
	}
	_, err = server.Run(context.Background(), server.Config{
		Listener: l, Ticket: env.Ticket, Version: ringo.Version, Index: env.Index, Servers: len(env.Addrs), Trainers: env.WorldSize,
		Mode: engine.Async, Durability: engine.None,
	})
	return err
}

// Two ranks on two servers learn who likes what.
func TestLearns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := launch.Run(ctx, launch.Config{
		Roles: []launch.Role{launch.Ranks(2, os.Args[0]), launch.ParameterServers(2, os.Args[0], "server")},
		Env:   append(os.Environ(), roleVar+"=1"), Version: ringo.Version, Stdout: &out, Stderr: t.Output(),
	}); err != nil {
		t.Fatal(err)
	}
	var accuracy, auc float64
	if _, err := fmt.Sscanf(out.String(), "accuracy %g, AUC %g\n", &accuracy, &auc); err != nil || accuracy < 0.9 || auc < 0.95 {
		t.Errorf("%q: %v; want an accuracy of 0.9 and an AUC of 0.95 at least", &out, err)
	}
}
