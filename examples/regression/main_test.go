package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
)

// The test binary is also the example itself.
const roleVar = "REGRESSION_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Alone and as two ranks it finds the prices of rows that it has not seen.
func TestFindsPrices(t *testing.T) {
	for _, np := range []int{1, 2} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var out bytes.Buffer
		if err := launch.Run(ctx, launch.Config{
			Roles: []launch.Role{launch.Ranks(np, os.Args[0], "houses.csv")}, Env: append(os.Environ(), roleVar+"=1"), Version: ringo.Version, Stdout: &out, Stderr: t.Output(),
		}); err != nil {
			t.Fatal(err)
		}
		var r2, mae float64
		if _, err := fmt.Sscanf(out.String(), "R² %g, mean absolute error %g standard deviations\n", &r2, &mae); err != nil || r2 < 0.98 || mae > 0.1 {
			t.Errorf("%d ranks: %q: %v; want an R² of 0.98 at least", np, &out, err)
		}
	}
}
