package collectives

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/benchtest"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

const collectiveFields = "bench op np transport algorithm buffer type redop root bytes count median_us min_us algbw_gb_s busbw_gb_s bytes_sent_per_rank wrong iterations"

// Every operation gives the right values in every type and by every reduction,
// also where the ranks have no values, fewer than ranks or odd numbers of them.
func TestBenchCollective(t *testing.T) {
	for _, typ := range typeNames() {
		if testing.Short() && typ != "float32" && typ != "bfloat16" {
			continue // kernels alone differ
		}
		for _, redop := range []string{"sum", "mean", "min", "max", "prod"} {
			if redop == "mean" && !elementTypes()[typ].means {
				continue
			}
			ops, want := "all", 3*(len(operations())-1)+1 // barrier has one size
			if redop != "sum" {
				ops, want = "allreduce", 3
			}
			if redop != "sum" && elementTypes()[typ].size == 2 {
				ops, want = "allreduce,reduce,reduce-scatter", 9
			}
			line := "--np 3 --transport mem --time 1us --root 2 --bytes 0,8,5000 --json - --op " + ops + " --type " + typ + " --redop " + redop
			status, out, errs := commandtest.Run(Command(&benchtest.Ranks{}), line)
			if status != 0 || strings.Count(errs, "\n") != want+3 {
				t.Fatalf("%s: status %d, stderr %s", line, status, errs)
			}
			for _, got := range commandtest.JSON(t, out, slices.Repeat([]string{collectiveFields}, want)...) {
				if got["type"] != typ || got["np"] != 3. || got["wrong"] != 0. || got["buffer"] != "private" {
					t.Errorf("%s: %v", line, got)
				}
				checkBandwidths(t, got)
			}
		}
	}
}

func checkBandwidths(t *testing.T, got map[string]any) {
	t.Helper()
	algbw := got["bytes"].(float64) / (got["median_us"].(float64) * 1e3)
	busbw := algbw * shapes[got["op"].(string)].bus(got["np"].(float64))
	if math.Abs(got["algbw_gb_s"].(float64)-algbw) > 1e-9*algbw || math.Abs(got["busbw_gb_s"].(float64)-busbw) > 1e-9*busbw {
		t.Errorf("bandwidths of %v, want %v and %v", got, algbw, busbw)
	}
}

func TestBenchCollectiveRefuses(t *testing.T) {
	for _, c := range [][]string{
		{"--op allsum", `--op "allsum" is not known (did you mean "all"?): use allgather`},
		{"--type float8", `--type "float8" is not known (did you mean "float16" or "float32" or "float64"?): use`},
		{"--redop xor", `--redop "xor" is not known`},
		{"--redop mean --type int32", "--redop mean is not defined for --type int32: use sum"},
		{"--np 2 --root 2", "--root 2: want a rank from 0 to 1"},
		{"--buffer shared", `--buffer "shared" is not known: use auto, arena or private`},
		{"--limit --type int32", "--limit is of allreduce, of float32 in arenas"},
		{"--limit --op barrier", "--limit is of allreduce"},
		{"--bytes 4 --floats 1", "--bytes and --floats both give sizes"},
		{"--bytes ''", "invalid argument"},
		{"--floats -1", "size -1: want 0 to 1073741824"},
		{"--bytes 6 --type float32", "size of 6 bytes: want whole values of --type float32, 4 bytes each"},
		{"--floats 3 --type int64", "size of 12 bytes: want whole values of --type int64, 8 bytes each"},
		{"--time 0s", "--time 0s: want more than 0 and at most 1h"},
	} {
		commandtest.Refused(t, Command(&benchtest.Ranks{}), cli.UsageError, c[0], c[1:]...)
	}
	for _, over := range []string{"mem", "tcp"} {
		commandtest.Refused(t, Command(&benchtest.Ranks{}), cli.UsageError, "--np 2 --buffer arena --transport "+over, "--buffer arena, and --limit, need memory that the ranks share", "--transport "+over)
	}
	commandtest.Refused(t, Command(&benchtest.Ranks{}), cli.Failed, "--buffer arena", "--buffer arena: the ranks share no memory over mem")
}

// A pattern's values are those of its definition from any place on, and one
// wrong value among them is found.
func TestPatterns(t *testing.T) {
	for _, op := range []collective.ReduceOp{collective.Sum, collective.Mean, collective.Min, collective.Max, collective.Prod} {
		for salt := range salts {
			own, all := operandBlocks(float32s, op, 2)[salt], reducedBlocks(float32s, op, 3)[salt]
			for _, n := range []int{0, 1, 7, blockLen, 2*blockLen + 3} {
				for _, first := range []int{0, 3, 11} {
					checkPattern(t, own, n, first, func(i int) float32 { return float32(operandOf(op, 2, i, salt)) })
					checkPattern(t, all, n, first, func(i int) float32 { return naiveReduction(op, 3, i, salt) })
				}
			}
		}
	}
}

func naiveReduction(op collective.ReduceOp, ranks, i, salt int) float32 {
	var x []float32
	sum, prod := float32(0), float32(1)
	for r := range ranks {
		v := float32(operandOf(op, r, i, salt))
		x, sum, prod = append(x, v), sum+v, prod*v
	}
	return map[collective.ReduceOp]float32{
		collective.Sum: sum, collective.Mean: sum * (1 / float32(ranks)), collective.Min: slices.Min(x), collective.Max: slices.Max(x), collective.Prod: prod,
	}[op]
}

func checkPattern(t *testing.T, b block[float32], n, first int, want func(i int) float32) {
	t.Helper()
	x := make([]float32, n)
	b.fill(x, first)
	for i, v := range x {
		if v != want(first+i) {
			t.Fatalf("value %d of %d from %d on is %v, want %v", i, n, first, v, want(first+i))
		}
	}
	if wrong, _ := b.wrong(x, first); wrong != 0 {
		t.Errorf("%d of %d right values are wrong", wrong, n)
	}
	if n == 0 {
		return
	}
	for _, i := range []int{0, n / 2, n - 1} {
		old := x[i]
		x[i] = -x[i]
		if wrong, at := b.wrong(x, first); wrong != 1 || at != i {
			t.Errorf("%d wrong values, the first %d, want one, %d", wrong, at, i)
		}
		x[i] = old
	}
}

// Successive calls, and different ranks, have different operands.
func TestOperandsDiffer(t *testing.T) {
	for _, op := range []collective.ReduceOp{collective.Sum, collective.Prod} {
		for rank := range 4 {
			own := operandBlocks(float32s, op, rank)
			if slices.Equal(own[0], own[1]) || slices.Equal(own[0], operandBlocks(float32s, op, rank+1)[0]) {
				t.Errorf("%v: rank %d has another's operands", op, rank)
			}
		}
	}
}

// A sum that is wrong by one, on one rank only, ends the benchmark.
func TestBenchFindsWrongSums(t *testing.T) {
	for _, c := range []struct {
		name   string
		reduce func(*collective.Group, []float32) error
		want   string
	}{
		{"off by one", func(g *collective.Group, x []float32) error {
			err := collective.AllReduce(g, x, collective.Sum)
			if g.Rank() == 1 {
				x[2]++
			}
			return err
		}, "rank 1, iteration 0: allreduce of 5 float32: value 2 is 9, want 8"},
		{"not summed", func(*collective.Group, []float32) error { return nil }, "value 0 is "},
	} {
		status, out, errs := commandtest.Run(allReduceBy(&benchtest.Ranks{}, c.reduce), "--np 2 --transport mem --floats 5 --json -")
		if status != cli.Failed || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.name, status, out, errs)
		}
	}
}
