package setting_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/setting"
)

// The settings of a configuration are rows beside it; texts are given by path, and what has no effect is found.
func ExampleTable() {
	rate, decay, optimizer := 0.1, 0.0, "sgd"
	t, err := setting.New(
		setting.Row{Path: "training.lr", Flag: "lr", Value: setting.Float(&rate), About: "learning rate"},
		setting.Row{Path: "training.optimizer", Value: setting.Choice(&optimizer, "sgd", "adamw"), About: "what moves the parameters"},
		setting.Row{Path: "training.decay", Needs: setting.Equals("training.optimizer", "adamw"), Value: setting.Float(&decay), About: "decay of the parameters"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	faults := t.Apply(setting.Assignment{Path: "training.lr", Text: "0.5", Origin: "--lr"}, setting.Assignment{Path: "training.decay", Text: "0.01", Origin: "job.yaml:3"}, setting.Assignment{Path: "training.optimiser", Text: "adamw"})
	fmt.Println(rate, faults.Err())
	fmt.Println(t.Idle().Err())
	// Output:
	// 0.5 training.optimiser is no setting (did you mean "training.optimizer"?)
	// training.decay has no effect: it needs training.optimizer adamw
}
