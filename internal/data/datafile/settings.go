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
	TargetPath     setting.Path = "data.target"
	SchemaPath     setting.Path = "data.schema"
	LayoutPath     setting.Path = "data.layout"
)
