package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"heeler.dev/agent-go/internal/agent"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/control"
)

// askTime is how long the running agent may take: to end readings, and to close a driver that is slow.
const askTime = time.Minute

// ask sends a command to the running agent and prints its answer.
func ask(command string, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("heeler-agent "+command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "configuration `file` of the running agent")
	socket := flags.String("socket", "", "`path` of its control socket")
	job := flags.String("job", "", "Slurm job `number`")
	asJSON := flags.Bool("json", false, "print the status as JSON")
	if err := parseFlags(flags, flagsFirst(flags, args)); err != nil {
		return err
	}
	r := control.Request{Command: command, Job: *job}
	if err := fill(&r, flags.Args(), *asJSON); err != nil {
		return err
	}
	at, err := socketOf(*socket, *path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	a, err := control.Ask(ctx, at, r)
	switch {
	case err != nil:
		return err
	case !a.OK:
		return errors.New(a.Text)
	case *asJSON:
		_, err = fmt.Fprintf(stdout, "%s\n", a.Status)
	case command == agent.CommandStatus:
		err = printStatus(stdout, a)
	default:
		_, err = fmt.Fprintln(stdout, a.Text)
	}
	return err
}

// flagsFirst puts flags before other words, so that `release 10m -socket S` is understood.
func flagsFirst(flags *flag.FlagSet, args []string) []string {
	var before, after []string
	for i := 0; i < len(args); i++ {
		word := args[i]
		if !strings.HasPrefix(word, "-") || word == "-" {
			after = append(after, word)
			continue
		}
		before = append(before, word)
		name, _, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		f := flags.Lookup(name)
		if f == nil || given || i+1 == len(args) {
			continue
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !ok || !b.IsBoolFlag() {
			i++
			before = append(before, args[i])
		}
	}
	return append(before, after...)
}

// fill takes the words behind the command, and refuses what the command does not know.
func fill(r *control.Request, words []string, asJSON bool) error {
	most := 0
	if r.Command == agent.CommandRelease || r.Command == agent.CommandPauseGPM {
		most = 1
	}
	if len(words) > most {
		return misused("%s: unexpected argument %q", r.Command, words[most])
	}
	if len(words) == 1 {
		r.For = words[0]
		if _, err := time.ParseDuration(r.For); err != nil {
			return misused("%s: %q is no time such as 90s or 10m", r.Command, r.For)
		}
	}
	switch {
	case r.Command == agent.CommandRelease && r.For == "":
		return misused("release: for how long?")
	case r.Command == agent.CommandPauseGPM && r.For == "" && r.Job == "":
		return misused("pause-gpm: for how long, or for which -job?")
	case r.Job != "" && r.Command != agent.CommandPauseGPM && r.Command != agent.CommandResume:
		return misused("%s: knows no -job", r.Command)
	case asJSON && r.Command != agent.CommandStatus:
		return misused("%s: knows no -json", r.Command)
	}
	return nil
}

// socketOf is where the running agent listens.
func socketOf(socket, path string) (string, error) {
	if socket != "" {
		return socket, nil
	}
	if path == "" {
		return config.Default().ControlSocket, nil
	}
	c, err := config.Load(path, nil, os.Getenv)
	if err != nil {
		return "", err
	}
	if c.ControlSocket == "" {
		return "", errors.New("control_socket is empty in " + path)
	}
	return c.ControlSocket, nil
}

// printStatus writes the line of the agent and one for each collector.
func printStatus(w io.Writer, a control.Answer) error {
	var s struct {
		Version    string
		Node       string
		Collectors map[string]struct{ State, Why string }
	}
	if err := json.Unmarshal(a.Status, &s); err != nil {
		return fmt.Errorf("the agent's status is unreadable: %w", err)
	}
	names := make([]string, 0, len(s.Collectors))
	for name := range s.Collectors {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	fmt.Fprintf(&b, "heeler-agent %s on %s: %s\n", s.Version, s.Node, a.Text)
	for _, name := range names {
		c := s.Collectors[name]
		fmt.Fprintf(&b, "  %-12s %-8s %s\n", name, c.State, strings.ReplaceAll(c.Why, "\n", "; "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
