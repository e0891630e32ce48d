// Command heeler-agent reads a GPU node and publishes what it sees to NATS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"heeler.dev/agent-go/internal/agent"
	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/control"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/sdnotify"
)

// version and commit are set by the linker.
var (
	version = "dev"
	commit  = ""
)

const usage = `heeler-agent reads a GPU node and publishes what it sees to NATS.

  heeler-agent run -config FILE            run until SIGTERM; SIGHUP reads the configuration anew
  heeler-agent once -config FILE           one reading as JSON, without a bus
  heeler-agent parse kmsg [-any-facility]  kernel log lines on stdin become events on stdout
  heeler-agent config print -config FILE   the configuration in force
  heeler-agent config check -config FILE   say what is wrong with it, all at once
  heeler-agent version
  heeler-agent help

To the agent that runs on this node (as root, its own user, or its group):

  heeler-agent status [-json]              how it is doing
  heeler-agent release 10m                 let go of the GPU driver, to reset or re-partition a GPU
  heeler-agent pause-gpm 1h                leave the GPUs' performance monitors to somebody else
  heeler-agent pause-gpm -job 81234 [1h]   likewise until that Slurm job is gone
  heeler-agent resume [-job 81234]         end a release and all pauses, or the pause of one job
  heeler-agent reload                      read the configuration anew, and say what is wrong with it

Any key of the configuration can be set with -set key=value, several times. Commands to the running agent find its
socket by -config FILE or -socket PATH (/run/heeler-agent/control.sock).
Secrets come from HEELER_NATS_USER and HEELER_NATS_PASSWORD, or HEELER_NATS_TOKEN.
Exit status: 0 done, 1 failed or refused, 2 used wrongly, 3 no agent answers.
`

var errUsage = errors.New("usage")

// misused is a wrong use that is worth naming.
func misused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

// The exit statuses.
const (
	failed  = 1
	wrong   = 2
	noAgent = 3
)

func main() { os.Exit(exitStatus(dispatch(os.Args[1:], os.Stdin, os.Stdout, os.Stderr), os.Stderr)) }

func exitStatus(err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case err == errUsage: //nolint:errorlint // with nothing more to say
		_, _ = io.WriteString(stderr, usage)
		return wrong
	}
	fmt.Fprintln(stderr, "heeler-agent:", strings.ReplaceAll(err.Error(), "\n", "\nheeler-agent: "))
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(stderr, "heeler-agent: see `heeler-agent help`")
		return wrong
	case errors.Is(err, control.ErrNoAgent):
		return noAgent
	default:
		return failed
	}
}

func dispatch(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	command, rest := args[0], args[1:]
	sub := ""
	if len(rest) > 0 {
		sub = rest[0]
	}
	switch command {
	case "run":
		return run(rest, stderr)
	case "once":
		return once(rest, stdout, stderr)
	case "parse":
		if sub == "kmsg" {
			return parseKmsg(rest[1:], stdin, stdout, stderr)
		}
	case "config":
		switch sub {
		case "print":
			return printConfig(rest[1:], stdout, stderr)
		case "check":
			return checkConfig(rest[1:], stdout, stderr)
		}
	case "version", "-version", "--version":
		return printVersion(rest, stdout)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	case agent.CommandStatus, agent.CommandRelease, agent.CommandResume, agent.CommandPauseGPM, agent.CommandReload:
		return ask(command, rest, stdout, stderr)
	}
	return misused("unknown command %q", strings.TrimSpace(command+" "+sub))
}

// settings collects -set flags.
type settings []string

func (s *settings) String() string { return strings.Join(*s, " ") }

// Set implements [flag.Value].
func (s *settings) Set(v string) error {
	*s = append(*s, v)
	return nil
}

// loader reads the flags that all commands with a configuration have, and returns what reads the configuration.
func loader(command string, args []string, stderr io.Writer) (func() (config.Config, error), error) {
	flags := flag.NewFlagSet("heeler-agent "+command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "configuration `file`, TOML")
	var set settings
	flags.Var(&set, "set", "override one `key=value` of the configuration")
	if err := parseFlags(flags, args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, misused("%s: unexpected argument %q", command, flags.Arg(0))
	}
	return func() (config.Config, error) { return config.Load(*path, set, os.Getenv) }, nil
}

// parseFlags marks a fault as wrong use. The flag package has said what it is.
func parseFlags(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

func load(command string, args []string, stderr io.Writer) (config.Config, error) {
	read, err := loader(command, args, stderr)
	if err != nil {
		return config.Config{}, err
	}
	return read()
}

func logger(c *config.Config, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	agent.SetLevel(level, c)
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// memoryLimit keeps the garbage collector from letting the heap of a process that is to be small grow.
const memoryLimit = 24 << 20

// oneProcessor keeps the scheduler from waking others of a node's hundred processors for what one does in a moment: that
// took a fifth of the agent's time. A call into the driver that hangs does not hold the processor.
func oneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

func run(args []string, stderr io.Writer) error {
	read, err := loader("run", args, stderr)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // before all else: without it the signal would end the agent
	c, err := read()
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryLimit)
	oneProcessor()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log, level := logger(&c, stderr)
	notify := sdnotify.FromEnvironment(os.Getenv, os.Getpid())
	a := agent.Agent{
		Config: c, Library: nvml.Open(c.NVML.Library), Version: version, Log: log, Level: level, Load: read,
		Hangup: hangup, Notify: notify,
	}
	return a.Run(ctx)
}

func once(args []string, stdout, stderr io.Writer) error {
	c, err := load("once", args, stderr)
	if err != nil {
		return err
	}
	log, _ := logger(&c, stderr)
	return agent.Once(context.Background(), &c, nvml.Open(c.NVML.Library), version, stdout, log)
}

func printConfig(args []string, stdout, stderr io.Writer) error {
	c, err := load("config print", args, stderr)
	if err != nil {
		return err
	}
	text, err := c.Print()
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, text)
	return err
}

func checkConfig(args []string, stdout, stderr io.Writer) error {
	c, err := load("config check", args, stderr)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "well: cluster %s, node %s\n", c.Cluster, c.Node)
	return err
}
