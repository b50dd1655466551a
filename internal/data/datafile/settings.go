package datafile

import "github.com/ringo-ml/ringo/internal/setting"

// Synthetic, instead of a folder, selects generated data.
const Synthetic = "synthetic"

// Settings of data sets, named in errors.
const (
	DirPath       setting.Path = "data.dir"
	TrainFilePath setting.Path = "data.train-file"
	EvalFilePath  setting.Path = "data.eval-file"
	SkipBadPath   setting.Path = "data.max-bad-records"

	TrainLimitPath setting.Path = "data.train-limit"
	TableRowsPath  setting.Path = "data.table-rows"
	StreamPath     setting.Path = "data.stream"
	SplitPath      setting.Path = "data.eval-split"
	FoldsPath      setting.Path = "training.folds"
	TargetPath     setting.Path = "data.target"
	SchemaPath     setting.Path = "data.schema"
	LayoutPath     setting.Path = "data.layout"
)

// EvalWords are words in the names of evaluation files, in order of preference.
func EvalWords() []string { return []string{"test", "dev", "valid", "eval"} }

// EvalParts are the names of evaluation folders, in order of preference.
func EvalParts() []string { return []string{"test", "val", "validation", "eval"} }
