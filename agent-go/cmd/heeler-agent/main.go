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
	"heeler.dev/agent-go/internal/nvml"
)

// version is set by the linker.
var version = "dev"

const usage = `heeler-agent reads a GPU node and publishes what it sees to NATS.

  heeler-agent run -config FILE            run until SIGTERM
  heeler-agent once -config FILE           one reading as JSON, without a bus
  heeler-agent parse kmsg [-any-facility]  kernel log lines on stdin become events on stdout
  heeler-agent config print -config FILE   the configuration in force
  heeler-agent version

Any key of the configuration can be set with -set key=value, several times.
Secrets come from HEELER_NATS_USER and HEELER_NATS_PASSWORD, or HEELER_NATS_TOKEN.
`

var errUsage = errors.New("usage")

func main() {
	err := dispatch(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	case errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "heeler-agent:", strings.ReplaceAll(err.Error(), "\n", "\nheeler-agent: "))
		os.Exit(1)
	}
}

func dispatch(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	command, rest := args[0], args[1:]
	switch {
	case command == "run":
		return run(rest, stderr)
	case command == "once":
		return once(rest, stdout, stderr)
	case command == "parse" && len(rest) > 0 && rest[0] == "kmsg":
		return parseKmsg(rest[1:], stdin, stdout, stderr)
	case command == "config" && len(rest) > 0 && rest[0] == "print":
		return printConfig(rest[1:], stdout, stderr)
	case command == "version":
		_, err := fmt.Fprintf(stdout, "heeler-agent %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	case command == "help" || command == "-h" || command == "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	default:
		return errUsage
	}
}

// settings collects -set flags.
type settings []string

func (s *settings) String() string { return strings.Join(*s, " ") }

// Set implements [flag.Value].
func (s *settings) Set(v string) error {
	*s = append(*s, v)
	return nil
}

// load reads the flags that all commands with a configuration have.
func load(command string, args []string, stderr io.Writer) (config.Config, error) {
	flags := flag.NewFlagSet("heeler-agent "+command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "configuration `file`, TOML")
	var set settings
	flags.Var(&set, "set", "override one `key=value` of the configuration")
	if err := flags.Parse(args); err != nil {
		return config.Config{}, err
	}
	if flags.NArg() > 0 {
		return config.Config{}, fmt.Errorf("%s: unexpected argument %q", command, flags.Arg(0))
	}
	return config.Load(*path, set, os.Getenv)
}

func logger(c *config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Log.Level)) // checked by the configuration
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// memoryLimit keeps the garbage collector from letting the heap of a process that is to be small grow.
const memoryLimit = 24 << 20

func run(args []string, stderr io.Writer) error {
	c, err := load("run", args, stderr)
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return agent.Run(ctx, &c, nvml.Open(c.NVML.Library), version, logger(&c, stderr))
}

func once(args []string, stdout, stderr io.Writer) error {
	c, err := load("once", args, stderr)
	if err != nil {
		return err
	}
	return agent.Once(context.Background(), &c, nvml.Open(c.NVML.Library), version, stdout, logger(&c, stderr))
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
