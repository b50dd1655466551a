package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// The test binary is also the example itself.
const roleVar = "QUANTILE_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// checkShares wants the shares of targets below the quantiles to be the quantiles.
func checkShares(t *testing.T, out string, np int) {
	t.Helper()
	var ranks int
	var below [3]float64
	if _, err := fmt.Sscanf(out, "%d ranks, [0.1 0.5 0.9]: below them [%f %f %f] of the targets\n", &ranks, &below[0], &below[1], &below[2]); err != nil || ranks != np {
		t.Fatalf("%q: %v", out, err)
	}
	for i, q := range quantiles {
		if math.Abs(below[i]-float64(q)) > 0.03 {
			t.Errorf("%v of the targets are below the quantile %v", below[i], q)
		}
	}
}

func TestQuantilesAlone(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=1")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	checkShares(t, string(out), 1)
}

func TestQuantilesOfTwoRanks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := launch.Run(ctx, launch.Config{
		Roles: []launch.Role{launch.Ranks(2, os.Args[0])}, Env: append(os.Environ(), roleVar+"=1"), Version: ringo.Version,
		Stdout: &out, Stderr: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	checkShares(t, out.String(), 2)
}

// The layer and the loss have the gradients that differences of the loss give, and quantiles never
// cross.
func TestGradientsOfLayerAndLoss(t *testing.T) {
	ps, r := nn.NewParams(1), rand.New(rand.NewPCG(1, 2))
	m := build(ps, model.Options{})
	b := model.Batch{N: 8, Values: nn.NewTensor(8, 1), Targets: make([]float32, 8)}
	for i := range b.Targets {
		b.Values.Data[i], b.Targets[i] = r.Float32()*2-1, r.Float32()*4-2
	}
	if err := nn.CheckGradients(ps, func(t *nn.Tape) *nn.Tensor { return m.Pass(t, b).Loss.Mean }, b.Values); err != nil {
		t.Error(err)
	}
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	for i, q := range m.Forward(tape, b)[0].Data {
		if y := m.Forward(tape, b)[0].Data; i%3 > 0 && q <= y[i-1] {
			t.Errorf("sample %d: quantiles %v cross", i/3, y[i-i%3:i+1])
		}
	}
}

// The example is there to be read in one go.
func TestIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 90 {
		t.Errorf("main.go has %d lines, want at most 90", n)
	}
}
