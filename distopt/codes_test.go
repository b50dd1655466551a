package distopt

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
)

// TestServersAcceptEveryCode: aggregation servers decode the code of each strategy without a setting.
func TestServersAcceptEveryCode(t *testing.T) {
	for _, i := range Infos() {
		if i.code != nil && !slices.ContainsFunc(aggregate.Codes(), func(q compress.Quantiser) bool { return q.Code() == i.code.Code() }) {
			t.Errorf("strategy %s: code %d is not in aggregate.Codes", i.Name, i.code.Code())
		}
	}
}
