//go:build !linux

package launch

// bound runs start. Binding a process to cores is only done on Linux.
func (r *Role) bound(_ int, start func() error) error { return start() }
