package heter

// Local is a RemoteStage in this process: one trainer and its device, one after the other. It is
// what others are compared with.
type Local struct{ Device Device }

// Send runs the micro-batch.
func (l Local) Send(m *MicroBatch) error { return l.Device.Run(m) }

// Wait returns at once.
func (l Local) Wait(*MicroBatch) error { return nil }

// End moves the part's parameters.
func (l Local) End(rate float64) error { return l.Device.Update(rate, 1) }
