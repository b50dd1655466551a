package modeltext

import "testing"

// TestCompareNamesTheFirstDifference names rank, parameter and both shapes, and passes equal models
// and lost ranks.
func TestCompareNamesTheFirstDifference(t *testing.T) {
	build := func(rows, columns int, more ...string) (out Text) {
		out.Parameter("hidden.weight", rows, columns)
		out.Parameter("hidden.bias", columns)
		for _, name := range more {
			out.Table(name, "10 rows of 4 values")
		}
		return out
	}
	const before, after = "rank 2 has another model than rank 0: ", ": all ranks must build the same one"
	for want, other := range map[string]Text{
		"": build(64, 80, "users"),
		before + "parameter 0 is hidden.weight of 80×64 values there, and hidden.weight of 64×80 values on rank 0" + after: build(80, 64, "users"),
		before + "table 0 is none there, and users of 10 rows of 4 values on rank 0" + after:                               build(64, 80),
		before + "table 0 is items of 10 rows of 4 values there, and users of 10 rows of 4 values on rank 0" + after:       build(64, 80, "items"),
		before + "table 1 is items of 10 rows of 4 values there, and none on rank 0" + after:                               build(64, 80, "users", "items"),
	} {
		got := ""
		if err := Compare([]Text{build(64, 80, "users"), nil, other}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	// A line cannot imitate two lines.
	var a, b Text
	a.Parameter("x\x004 values\nparameter\x00y", 4)
	b.Parameter("x", 4)
	b.Parameter("y", 4)
	if Compare([]Text{a, b}) == nil {
		t.Error("two models have one text")
	}
}
