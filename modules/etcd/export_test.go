package etcd

import "testing"

// Server is a server of these tests, for those outside the package.
type Server struct{ *server }

func NewServer(t *testing.T, scheme string) Server { return Server{newServer(t, scheme)} }

func (s Server) Address() string { return s.client }
func (s Server) Start()          { s.start() }
func (s Server) Kill()           { s.kill() }
func (s Server) Freeze()         { s.freeze() }
func (s Server) Thaw()           { s.thaw() }
