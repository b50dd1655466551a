package settingtest_test

import (
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/setting/settingtest"
)

func TestAnother(t *testing.T) {
	n, x, on, word, d, size, text := 3, 0.5, true, "wal", time.Minute, int64(1<<30), "x"
	var list []string
	for _, v := range []setting.Value{
		setting.Int(&n), setting.Float(&x), setting.Bool(&on), setting.Choice(&word, "none", "wal"), setting.Duration(&d),
		setting.Bytes(&size), setting.Text(&text), setting.List(&list),
	} {
		before := v.String()
		got := settingtest.Another(t, setting.Row{Path: "a", Value: v})
		if got == before || v.String() != before {
			t.Errorf("%q: another is %q, and it is %q now", before, got, v)
		}
		if err := v.Set(got); err != nil {
			t.Error(err)
		}
	}
}
