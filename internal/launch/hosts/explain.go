package hosts

import (
	"fmt"
	"strings"
)

// Exit statuses of ssh and of shells.
const (
	sshFailed     = 255
	cannotExecute = 126
	notFound      = 127
	// NoCopy is the exit status of the script that finds no copy of this program.
	NoCopy = 90
)

// remedies are the remedies for ssh's messages: the first match, with the host for HOST.
var remedies = []struct{ says, do string }{
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", "its key is another than it was: if that is right, `ssh-keygen -R HOST`, and `ssh HOST true` to see and accept the new one"},
	{"Host key verification failed", "its host key is not accepted yet: run `ssh HOST true` and accept it"},
	{"Permission denied", "ssh may not ask for a password here: `ssh-copy-id HOST`, or an agent that has the key; `ssh -o BatchMode=yes HOST true` must work"},
	{"Too many authentication failures", "ssh has offered too many keys: name the right one in ~/.ssh/config (IdentityFile, IdentitiesOnly yes)"},
	{"Could not resolve hostname", "the name does not resolve on this host: check it with `getent hosts HOST`"},
	{"Connection refused", "no sshd listens at this port: start it, or set Port in ~/.ssh/config"},
	{"No route to host", "the host is off, or no network route leads to it"},
	{"timed out", "it does not answer: the host is off, or a firewall drops the packets"},
	{"Connection reset", "sshd there has hung up: it may have too many connections at a time (MaxStartups)"},
	{"Connection closed", "sshd there has hung up: it may have too many connections at a time (MaxStartups), or was ended"},
}

// explain describes the end of a session by ssh's exit status and last message.
func explain(host string, status int, wrote string) string {
	last := ""
	for line := range strings.Lines(wrote) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	quoted := ""
	if last != "" {
		quoted = fmt.Sprintf(": %q", last)
	}
	switch status {
	case sshFailed:
		for _, r := range remedies {
			if strings.Contains(wrote, r.says) {
				return "ssh failed" + quoted + "; " + strings.ReplaceAll(r.do, "HOST", host)
			}
		}
		return "ssh failed" + quoted
	case notFound:
		return "there is no such program there" + quoted
	case cannotExecute:
		return "that program cannot be run there" + quoted
	case -1:
		return "ssh was ended by a signal" + quoted
	}
	return fmt.Sprintf("its launcher has ended with status %d%s", status, quoted)
}
