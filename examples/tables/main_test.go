package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server"
	"github.com/ringo-ml/ringo/internal/server/engine"
)

// The test binary is also the example itself.
const roleVar = "TABLES_TEST_ROLE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(roleVar) == "":
		os.Exit(m.Run())
	case len(os.Args) > 1:
		if err := serve(engine.Mode(os.Args[1])); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		main()
	}
	os.Exit(0)
}

// serve is `ringo server`, as a launcher starts it.
func serve(mode engine.Mode) error {
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
		Mode: mode, Durability: engine.None,
	})
	return err
}

// Two ranks on two servers learn who likes what, in step and out of it.
func TestLearns(t *testing.T) {
	for _, mode := range []engine.Mode{engine.BSP, engine.Async, engine.SSP} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var out bytes.Buffer
		if err := launch.Run(ctx, launch.Config{
			Roles: []launch.Role{launch.Ranks(2, os.Args[0]), launch.ParameterServers(2, os.Args[0], string(mode))},
			Env:   append(os.Environ(), roleVar+"=1"), Version: ringo.Version, Stdout: &out, Stderr: t.Output(),
		}); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		checkLearnt(t, out.String())
	}
}

// Servers that would take its gradients for moves refuse it, and say what to do.
func TestGeoIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	err := launch.Run(ctx, launch.Config{
		Roles: []launch.Role{launch.Ranks(2, os.Args[0]), launch.ParameterServers(2, os.Args[0], string(engine.Geo))},
		Env:   append(os.Environ(), roleVar+"=1"), Version: ringo.Version, Stdout: &out, Stderr: &errs,
	})
	var death *launch.LostProcessError
	if !errors.As(err, &death) || death.Role != "rank" || out.Len() > 0 {
		t.Fatalf("got %v, stdout %q", err, &out)
	}
	for _, want := range []string{"in geo mode servers add what is pushed to the parameters, by no rule", "servers of mode bsp, async or ssp"} {
		if told := errs.String() + err.Error(); !strings.Contains(told, want) { // by the rank, or by its launcher for it
			t.Errorf("%q is not in\n%s", want, told)
		}
	}
}

// checkLearnt reads what rank 0 printed.
func checkLearnt(t *testing.T, out string) {
	t.Helper()
	lines, loss := strings.Split(strings.TrimSpace(out), "\n"), 1.0
	for i, line := range lines {
		var step, ranks, servers int
		before := loss
		if _, err := fmt.Sscanf(line, "step %d, rank 0 of %d, %d servers: loss %g", &step, &ranks, &servers, &loss); err != nil || step != 100*(i+1) || ranks != 2 || servers != 2 {
			t.Fatalf("line %q: %v", line, err)
		}
		if loss >= before {
			t.Errorf("the loss does not fall: %v, then %v", before, loss)
		}
	}
	if len(lines) != steps/100 || loss > 0.02 {
		t.Errorf("%d lines, the last loss is %v", len(lines), loss)
	}
}

// Its gradients are those of its loss.
func TestGradients(t *testing.T) {
	const h = 1e-3
	rnd := rand.New(rand.NewPCG(3, 4))
	keys := make([]uint64, 6)
	draw(keys, rnd)
	rows, grads := make([]float32, len(keys)*dim), make([]float32, len(keys)*dim)
	for i := range rows {
		rows[i] = rnd.Float32() - 0.5
	}
	learn(keys, rows, grads)
	unused := make([]float32, len(rows))
	for i, x := range rows {
		rows[i] = x + h
		up := learn(keys, rows, unused)
		rows[i] = x - h
		down := learn(keys, rows, unused)
		rows[i] = x
		want := (up - down) / (2 * h) * float64(len(keys)/2) // learn's loss is a mean, its gradients are a sum's
		if math.Abs(float64(grads[i])-want) > 1e-3 {
			t.Errorf("weight %d: %v, by differences %v", i, grads[i], want)
		}
	}
}

// Without servers it says what to do.
func TestAlone(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=1")
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = io.Discard, &errs
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(errs.String(), "tables: ") || !strings.Contains(errs.String(), "ringo run with some (servers.count 1, sync async)") {
		t.Errorf("%v: %s", err, &errs)
	}
}
