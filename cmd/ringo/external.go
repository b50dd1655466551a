package main

import (
	"os"
	"strconv"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/setting"
)

// externalSettings returns the rank, size and rendezvous of a rank that an external launcher such
// as mpirun has started, as settings. It returns nil without such a launcher, and if --rank is
// given.
func (g *commandSettings) externalSettings(said []setting.Assignment) ([]setting.Assignment, error) {
	text := map[setting.Path]string{}
	for _, a := range said {
		text[a.Path] = a.Text
	}
	if _, byHand := text["job.rank"]; byHand || !g.ranks && !g.starts || g.worker {
		return nil, nil
	}
	ranks, _ := strconv.Atoi(text["job.ranks"]) // the setting's row reports an invalid number
	rendezvous := text["job.rendezvous"]
	serversOnly := text["ps.failure-policy"] == string(engine.ContinueJob) // ranks connect to servers only
	if serversOnly {
		rendezvous = "/"
	}
	env, place, present, err := launch.FromExternal(func(name string) (string, bool) {
		switch file := text["job.ticket-file"]; {
		case file != "" && name == launch.TicketFileVar:
			return file, true
		case file != "" && name == launch.TicketVar:
			return "", false
		}
		return os.LookupEnv(name)
	}, ranks, rendezvous)
	if !g.ranks && place.Each < 2 {
		return nil, nil // the command runs once
	}
	if !present || err != nil {
		return nil, err
	}
	by := setting.Origin(place.Launcher)
	if place.Each > 1 {
		g.part, g.each, g.externalLauncher = &env, place.Each, place.String()
		return []setting.Assignment{{Path: "job.ranks", Text: strconv.Itoa(env.WorldSize), Origin: by}}, nil
	}
	out := []setting.Assignment{
		{Path: "job.rank", Text: strconv.Itoa(env.Rank), Origin: by},
		{Path: "job.ranks", Text: strconv.Itoa(env.WorldSize), Origin: by},
	}
	if g.externalLauncher = place.String(); !serversOnly {
		out = append(out, setting.Assignment{Path: "job.rendezvous", Text: env.Rendezvous, Origin: by})
	}
	return out, nil
}
