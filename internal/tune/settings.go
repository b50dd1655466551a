package tune

import (
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Settings are the rows of Config.Exchange: distopt's, plus the strategy Auto and the plans of
// Plans.
func Settings(x *distopt.Config) []setting.Row {
	rows := x.Settings()
	for i := range rows {
		switch r := &rows[i]; r.Path {
		case "exchange.strategy":
			r.Value = setting.Choice(&x.Strategy, append(distopt.Strategies(), Auto, "")...)
			r.About += "; auto: the fastest of several, by measurements"
		case "exchange.plan":
			r.Value = setting.Choice(&x.Plan, append(append(distopt.Plans(), Plans()...), "")...)
			r.About += ", exact for auto; mgwfbp, dlgs-scan and exact are computed from measurements, saved is a profile's plan"
		case "exchange.spars", "exchange.dlgs-every", "exchange.dlgs-rule": // DLGS's, a choice of Auto
			r.Needs = setting.Any(setting.Equals("exchange.strategy", string(Auto)), r.Needs)
		}
	}
	return rows
}
