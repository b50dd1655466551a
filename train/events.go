package train

// Epoch is what one epoch was like, over all ranks. As JSON it is one line of
// the file named by --json.
type Epoch struct {
	Event string `json:"event"` // "epoch"
	Epoch int    `json:"epoch"` // from 1
	// Losses are means per sample; accuracies are shares of 1. Training
	// figures are gathered while the epoch trains.
	TrainLoss     float64 `json:"train_loss"`
	TrainAccuracy float64 `json:"train_accuracy"`
	EvalLoss      float64 `json:"eval_loss"`
	EvalAccuracy  float64 `json:"eval_accuracy"`
	// SamplesPerS counts all ranks, over the time spent training.
	SamplesPerS float64 `json:"samples_per_s"`
	// StepMS is the mean time of a step, ExposedCommMS the mean part of it from
	// the end of backward to the last agreement; both are means over ranks.
	StepMS        float64 `json:"step_ms"`
	ExposedCommMS float64 `json:"exposed_comm_ms"`
	// BytesSent is the payload all ranks sent in the epoch, evaluation
	// included; WireBytes adds headers, handshakes and control connections.
	BytesSent int64 `json:"bytes_sent"`
	WireBytes int64 `json:"wire_bytes"`
}

// Summary is the whole run.
type Summary struct {
	Event        string  `json:"event"` // "summary"
	Model        string  `json:"model"`
	Params       int     `json:"params"`
	NP           int     `json:"np"`
	Strategy     string  `json:"strategy"`
	Plan         string  `json:"plan"`
	Buckets      int     `json:"buckets"`
	EvalAccuracy float64 `json:"eval_accuracy"`
	SamplesPerS  float64 `json:"samples_per_s"`
	// ParamsSHA256 is the hash of the parameters, which all ranks agreed on.
	ParamsSHA256 string  `json:"params_sha256"`
	WallS        float64 `json:"wall_s"`
}

// Progress is how far the current epoch is.
type Progress struct {
	Phase       string // "train" or "evaluate"
	Epoch       int    // from 1
	Epochs      int
	Done, Total int     // batches of this rank in this phase
	Samples     int     // of all ranks since the last call
	Loss        float64 // of this rank's last batch; 0 while evaluating
}

// Observer is told what happens. Its methods are called on the training
// goroutine, in order, and should return soon.
type Observer interface {
	// Start is called once, when all ranks are about to take the first step.
	Start(Info)
	// Progress is called after each batch.
	Progress(Progress)
	// Epoch is called after each epoch.
	Epoch(Epoch)
}

// Info is what is known before the first step.
type Info struct {
	Model          string
	Params         int
	NP, Threads    int
	Batch          int
	TrainSamples   int
	EvalSamples    int
	Epochs         int
	StepsPerEpoch  int
	Strategy, Plan string
	Buckets        int
	Kernels        string
	Transport      string
	DataSet        string
}
