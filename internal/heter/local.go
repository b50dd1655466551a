package heter

// Local is a RemoteStage in this process without pipelining, for comparison.
type Local struct{ Device Device }

// Send runs the micro-batch.
func (l Local) Send(m *MicroBatch) error { return l.Device.Run(m) }

// Wait returns immediately.
func (l Local) Wait(*MicroBatch) error { return nil }

// End updates the stage's parameters.
func (l Local) End(rate float64) error { return l.Device.Update(rate, 1) }
