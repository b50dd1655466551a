package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
)

// The test binary is also the example itself, and a server.
const roleVar = "HETER_TEST_ROLE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(roleVar) == "":
		os.Exit(m.Run())
	case len(os.Args) > 1 && os.Args[1] == "server":
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 1 && os.Args[1] == "idle":
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
		Mode: engine.BSP, Durability: engine.None,
	})
	return err
}

// job runs the example as ranks, a server and heter-trainers, which have arguments of their own.
func job(t *testing.T, ranks, heters int, rank, heter []string) (out, errs string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := func(args []string) []string { return append([]string{os.Args[0]}, args...) }
	roles := []launch.Role{launch.Ranks(ranks, command(rank)...), launch.ParameterServers(1, os.Args[0], "server")}
	if heters > 0 {
		roles = append(roles, launch.HeterTrainers(heters, command(heter)...))
	}
	var o, e bytes.Buffer
	err = launch.Run(ctx, launch.Config{Roles: roles, Env: append(os.Environ(), roleVar+"=1"), Version: ringo.Version, Stdout: &o, Stderr: &e})
	return o.String(), e.String(), err
}

// loss is what a good run has printed.
func loss(t *testing.T, ranks, heters int, args ...string) (loss float64) {
	t.Helper()
	out, errs, err := job(t, ranks, heters, args, args)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	var accuracy, auc float64
	if _, err := fmt.Sscanf(out, "loss %g, accuracy %g, AUC %g\n", &loss, &accuracy, &auc); err != nil || accuracy < 0.95 || auc < 0.95 {
		t.Fatalf("%q: %v", out, err)
	}
	for i := range heters {
		if want := fmt.Sprintf("[heter %d] heter-trainer %d of %d is done: ", i, i, heters); !strings.Contains(errs, want) {
			t.Errorf("%q is not in\n%s", want, errs)
		}
	}
	return loss
}

// The program learns with heter-trainers, which are itself, what it learns in one piece: one rank that sends whole batches to one with the same bits.
func TestLearns(t *testing.T) {
	if whole, split := loss(t, 1, 0), loss(t, 1, 1, "-micros", "1"); whole != split {
		t.Errorf("loss %v, in one piece %v", split, whole)
	}
	whole := loss(t, 2, 0)
	for _, heters := range []int{1, 2} {
		if split := loss(t, 2, heters); math.Abs(whole-split) > 1e-5 {
			t.Errorf("%d heter-trainers: loss %v, in one piece %v", heters, split, whole)
		}
	}
}

// A program that never serves is told what to do, and one with another part is refused.
func TestRefused(t *testing.T) {
	_, _, err := job(t, 1, 1, nil, []string{"idle"})
	var death *launch.LostProcessError
	if !errors.As(err, &death) || death.Role != launch.Heter || !strings.Contains(err.Error(), "heter-trainer 0 is lost: it has ended with exit status 0 and never served: a program that has a part for heter-trainers calls ringo.Run, and there train.Run") {
		t.Errorf("got %v", err)
	}
	_, _, err = job(t, 1, 1, nil, []string{"-hidden", "16"})
	if err == nil || !strings.Contains(err.Error(), "heter-trainer 0 failed: this heter-trainer has another part of a model (that of likes") {
		t.Errorf("got %v", err)
	}
}
