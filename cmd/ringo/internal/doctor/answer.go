package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/launch/hosts"
	"github.com/ringo-ml/ringo/transport"
)

// Answering returns the hidden command that answers a remote doctor. reached is SSH_CONNECTION.
func Answering(version string, reached func() string) *cobra.Command {
	network := ""
	cmd := &cobra.Command{
		Use:    AnswerCommand,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := hostReport{Version: version, Found: localHost().look()}
			self, err := os.Executable()
			if err == nil {
				t.Hash, err = hosts.Hash(self)
			}
			if err != nil {
				return err
			}
			ip, err := reachedAt(network, reached())
			if err != nil {
				return err
			}
			return respond(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), t, ip)
		},
	}
	cmd.Flags().StringVar(&network, "interface", "", "")
	return cmd
}

// reachedAt returns the address to listen at: the named interface's, or the one that ssh reached.
func reachedAt(network, reached string) (net.IP, error) {
	if words := strings.Fields(reached); network == "" && len(words) == 4 && net.ParseIP(words[2]) != nil {
		return net.ParseIP(words[2]), nil
	}
	return cluster.HostAddress(network, false)
}

// respond reads a ticket from in, writes t with this host's addresses, and answers until in ends.
func respond(ctx context.Context, in io.Reader, out io.Writer, t hostReport, ip net.IP) error {
	r := bufio.NewReader(io.LimitReader(in, 1<<10))
	line, err := r.ReadString('\n')
	if err != nil {
		return fmt.Errorf("no ticket: %w", err)
	}
	ticket, err := transport.ParseTicket(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listen := func(mode, ip string) (string, error) {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			return "", err
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		all.Go(func() { serve(ctx, l, t.Version, ticket, mode) })
		return l.Addr().String(), nil
	}
	var err2 error
	t.Plain, err = listen(transport.TLSOff, ip.String())
	t.TLS, err2 = listen(transport.TLSOn, ip.String())
	for _, w := range otherAddresses(ip) {
		if at, err := listen(transport.TLSOff, w.Addr); err == nil { // otherwise the address is unusable
			t.Others = append(t.Others, route{w.Interface, at})
		}
	}
	if err := errors.Join(err, err2, json.NewEncoder(out).Encode(t)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r) // until the asking host is done
	return err
}
