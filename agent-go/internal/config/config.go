// Package config reads the agent's configuration: one TOML file, overridden by flags, with secrets from the environment.
// A key that it does not know is a fault, and all faults are reported together.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"heeler.dev/agent-go/internal/dcgm"
	"heeler.dev/agent-go/internal/hostfs"
	"heeler.dev/schemas/go/heelerv1"
)

// Duration is a time.Duration that is written as "1s".
type Duration struct{ time.Duration }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	d.Duration = v
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Config is the agent's configuration.
type Config struct {
	// Cluster is the name of the cluster. Required.
	Cluster string `toml:"cluster"`
	// Node is the node's name as Slurm spells it; the short host name where empty.
	Node string `toml:"node"`
	// BootID stands in for the kernel's, for several agents on one machine. It must change whenever the kernel log
	// starts anew.
	BootID string `toml:"boot_id"`
	// StateDir keeps positions and events that wait for the bus.
	StateDir string `toml:"state_dir"`
	// ControlSocket is where the running agent takes commands; empty for nowhere.
	ControlSocket string `toml:"control_socket"`
	// Proc and Sys are where these file systems are.
	Proc string `toml:"proc"`
	Sys  string `toml:"sys"`
	// Interval is the time between GPU readings, Window the time that one sample stands for.
	Interval       Duration `toml:"interval"`
	Window         Duration `toml:"window"`
	StatusInterval Duration `toml:"status_interval"`

	NATS       NATS       `toml:"nats"`
	Kmsg       Kmsg       `toml:"kmsg"`
	NVML       NVML       `toml:"nvml"`
	IB         IB         `toml:"ib"`
	Host       Host       `toml:"host"`
	DCGM       DCGM       `toml:"dcgm"`
	Spool      Spool      `toml:"spool"`
	Outbox     Outbox     `toml:"outbox"`
	Collectors Collectors `toml:"collectors"`
	Log        Log        `toml:"log"`
}

// NATS says how to reach the bus.
type NATS struct {
	Servers []string `toml:"servers"`
	// Discover also connects to servers that those name as members of their cluster.
	Discover bool `toml:"discover"`
	// Creds and NKey are files, and so are PasswordFile and TokenFile. Password and token themselves come only from
	// the environment, HEELER_NATS_PASSWORD and HEELER_NATS_TOKEN; HEELER_NATS_USER overrides the user. Files are read
	// at each connection, so that they can be replaced while the agent runs. $CREDENTIALS_DIRECTORY in a path stands
	// for the folder of systemd's LoadCredential.
	Creds        string `toml:"creds"`
	NKey         string `toml:"nkey"`
	User         string `toml:"user"`
	PasswordFile string `toml:"password_file"`
	TokenFile    string `toml:"token_file"`
	// InboxPrefix is where replies come to; _INBOX_<node> as a token where empty.
	InboxPrefix string `toml:"inbox_prefix"`
	// ConnectJitter spreads the first connection of a fleet.
	ConnectJitter Duration `toml:"connect_jitter"`
	// BufferSamples is how many samples wait while the bus is away.
	BufferSamples int `toml:"buffer_samples"`
	TLS           TLS `toml:"tls"`

	Password string `toml:"-"`
	Token    string `toml:"-"`
}

// TLS names files.
type TLS struct {
	CA   string `toml:"ca"`
	Cert string `toml:"cert"`
	Key  string `toml:"key"`
	// First begins with the handshake, for servers with handshake_first.
	First bool `toml:"first"`
}

// Kmsg is the kernel log.
type Kmsg struct {
	Path          string   `toml:"path"`
	AnyFacility   bool     `toml:"any_facility"`
	FloodInterval Duration `toml:"flood_interval"`
}

// NVML is the GPU library.
type NVML struct {
	// Library is its path; the system's own where empty.
	Library string `toml:"library"`
	// GPM switches the performance monitor on.
	GPM bool `toml:"gpm"`
	// HangAfter is when a GPU that does not answer is called hung.
	HangAfter Duration `toml:"hang_after"`
	// Retry is the time between attempts to open the library.
	Retry Duration `toml:"retry"`
}

// IB is the InfiniBand collector.
type IB struct {
	Interval Duration `toml:"interval"`
	// VirtualFunctions says that virtual functions of this node's adapters are read too.
	VirtualFunctions bool `toml:"virtual_functions"`
}

// Host is the collector of the node's processors, memory and PCIe errors.
type Host struct {
	Interval Duration `toml:"interval"`
}

// DCGM is the option to read what only NVIDIA's DCGM knows, through its command dcgmi.
type DCGM struct {
	Enabled bool `toml:"enabled"`
	// Command is dcgmi, and what comes before its own arguments.
	Command []string `toml:"command"`
	// Host is the address of the host engine; dcgmi's own default where empty.
	Host string `toml:"host"`
	// Fields are the numbers of the profiling fields; empty for all that the agent knows.
	Fields []int `toml:"fields"`
	// Interval is the time between readings of GPUs, SwitchInterval that of NVSwitches.
	Interval       Duration `toml:"interval"`
	SwitchInterval Duration `toml:"switch_interval"`
}

// Spool is the store of events that wait for the bus.
type Spool struct {
	MaxBytes int64    `toml:"max_bytes"`
	Grace    Duration `toml:"grace"`
}

// Outbox is the folder in which other programs of the node leave what they have to say.
type Outbox struct {
	Path     string `toml:"path"`
	MaxFiles int    `toml:"max_files"`
	MaxBytes int64  `toml:"max_bytes"`
	// Owners are the user ids whose files are passed on; the agent's own always is.
	Owners []uint32 `toml:"owners"`
}

// Collectors switches them on and off.
type Collectors struct {
	NVML bool `toml:"nvml"`
	Kmsg bool `toml:"kmsg"`
	IB   bool `toml:"ib"`
	Host bool `toml:"host"`
	// NVMLEvents is the second source of XIDs; it needs nvml.
	NVMLEvents bool `toml:"nvml_events"`
	Outbox     bool `toml:"outbox"`
}

// Log is how the agent speaks.
type Log struct {
	Format string `toml:"format"`
	Level  string `toml:"level"`
}

// Default is the configuration of an empty file.
func Default() Config {
	second := func(n int) Duration { return Duration{time.Duration(n) * time.Second} }
	return Config{
		StateDir: "/var/lib/heeler-agent", ControlSocket: "/run/heeler-agent/control.sock", Proc: "/proc", Sys: "/sys",
		Interval: second(1), Window: second(10), StatusInterval: second(30),
		NATS:       NATS{Servers: []string{"nats://127.0.0.1:4222"}, Discover: true, ConnectJitter: second(10), BufferSamples: 512},
		Kmsg:       Kmsg{Path: "/dev/kmsg", FloodInterval: second(10)},
		NVML:       NVML{GPM: true, HangAfter: second(3), Retry: second(30)},
		IB:         IB{Interval: second(10)},
		Host:       Host{Interval: second(10)},
		DCGM:       DCGM{Command: []string{"dcgmi"}, Fields: []int{}, Interval: second(1), SwitchInterval: second(30)},
		Spool:      Spool{MaxBytes: 32 << 20, Grace: second(3)},
		Outbox:     Outbox{Path: "/var/spool/heeler/outbox", MaxFiles: 10_000, MaxBytes: 64 << 20, Owners: []uint32{0}},
		Collectors: Collectors{NVML: true, Kmsg: true, IB: true, Host: true, NVMLEvents: true, Outbox: true},
		Log:        Log{Format: "text", Level: "info"},
	}
}

// Load reads a file, and settings of the form key=value that override it. An empty path means no file.
func Load(path string, settings []string, getenv func(string) string) (Config, error) {
	c := Default()
	var faults []error
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return c, err
		}
		faults = append(faults, c.merge(path, data)...)
	}
	for _, s := range settings {
		text, err := fragment(s)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		faults = append(faults, c.merge("-set "+s, text)...)
	}
	if user := getenv("HEELER_NATS_USER"); user != "" {
		c.NATS.User = user
	}
	c.NATS.Password = getenv("HEELER_NATS_PASSWORD")
	c.NATS.Token = getenv("HEELER_NATS_TOKEN")
	c.NATS.expand(getenv)
	faults = append(faults, c.complete()...)
	faults = append(faults, c.check()...)
	return c, errors.Join(faults...)
}

// expand puts the folder of systemd's credentials into the paths that name it.
func (n *NATS) expand(getenv func(string) string) {
	folder := func(name string) string {
		if name == "CREDENTIALS_DIRECTORY" {
			return getenv(name)
		}
		return "$" + name
	}
	for _, path := range []*string{
		&n.Creds, &n.NKey, &n.PasswordFile, &n.TokenFile, &n.TLS.CA, &n.TLS.Cert, &n.TLS.Key,
	} {
		*path = os.Expand(*path, folder)
	}
}

// identities are the ways to say who the agent is that are in use.
func (n *NATS) identities() []string {
	var all []string
	for _, way := range []struct {
		name  string
		given bool
	}{
		{"creds", n.Creds != ""}, {"nkey", n.NKey != ""}, {"user", n.User != ""},
		{"token", n.Token != "" || n.TokenFile != ""},
	} {
		if way.given {
			all = append(all, way.name)
		}
	}
	return all
}

// merge reads TOML over what is there.
func (c *Config) merge(from string, data []byte) []error {
	meta, err := toml.Decode(string(data), c)
	if err != nil {
		return []error{fmt.Errorf("%s: %w", from, err)}
	}
	var faults []error
	for _, key := range meta.Undecoded() {
		faults = append(faults, fmt.Errorf("%s: unknown key %s", from, key))
	}
	return faults
}

// fragment turns key=value into TOML; a value that is not TOML is taken as a string.
func fragment(setting string) ([]byte, error) {
	key, value, ok := strings.Cut(setting, "=")
	if !ok {
		return nil, fmt.Errorf("-set %s: not key=value", setting)
	}
	var probe map[string]any
	text := key + " = " + value
	if _, err := toml.Decode(text, &probe); err != nil {
		text = fmt.Sprintf("%s = %q", key, value)
	}
	return []byte(text + "\n"), nil
}

// complete fills in what depends on the host.
func (c *Config) complete() []error {
	var faults []error
	if c.Node == "" {
		name, err := hostfs.ShortHostname()
		if err != nil {
			faults = append(faults, fmt.Errorf("node: %w", err))
		}
		c.Node = name
	}
	if c.NATS.InboxPrefix == "" {
		if token, err := heelerv1.Token(c.Node); err == nil {
			c.NATS.InboxPrefix = "_INBOX_" + token
		}
	}
	if c.BootID == "" {
		id, err := hostfs.Host{Proc: c.Proc, Sys: c.Sys}.BootID()
		if err != nil {
			faults = append(faults, err)
		}
		c.BootID = id
	}
	return faults
}

const (
	shortest = 100 * time.Millisecond
	longest  = 60 * time.Second
)

func (c *Config) check() []error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	for key, name := range map[string]string{"cluster": c.Cluster, "node": c.Node} {
		_, err := heelerv1.Token(name)
		fault(err != nil, "%s: %v", key, err)
	}
	between := func(key string, d Duration, low, high time.Duration) {
		fault(d.Duration < low || d.Duration > high, "%s: %s is not between %s and %s", key, d, low, high)
	}
	between("interval", c.Interval, shortest, longest)
	between("window", c.Window, shortest, longest)
	between("status_interval", c.StatusInterval, shortest, time.Hour)
	between("ib.interval", c.IB.Interval, shortest, time.Hour)
	between("host.interval", c.Host.Interval, shortest, time.Hour)
	between("dcgm.interval", c.DCGM.Interval, shortest, longest)
	between("dcgm.switch_interval", c.DCGM.SwitchInterval, time.Second, time.Hour)
	fault(len(c.DCGM.Command) == 0 || c.DCGM.Command[0] == "", "dcgm.command: empty")
	for _, id := range c.DCGM.Fields {
		fault(!slices.Contains(dcgm.Fields(), id), "dcgm.fields: %d is none of %v", id, dcgm.Fields())
	}
	between("kmsg.flood_interval", c.Kmsg.FloodInterval, shortest, time.Hour)
	between("nvml.hang_after", c.NVML.HangAfter, shortest, time.Hour)
	between("nvml.retry", c.NVML.Retry, shortest, time.Hour)
	between("spool.grace", c.Spool.Grace, 2*time.Second, time.Hour)
	between("nats.connect_jitter", c.NATS.ConnectJitter, 0, time.Hour)
	fault(c.Interval.Duration > 0 && c.Window.Duration%c.Interval.Duration != 0,
		"window: %s is not a multiple of interval %s", c.Window, c.Interval)
	fault(len(c.NATS.Servers) == 0, "nats.servers: none")
	if ways := c.NATS.identities(); len(ways) > 1 {
		fault(true, "nats: %s are given; one is enough", strings.Join(ways, " and "))
	}
	fault(c.NATS.Password != "" && c.NATS.PasswordFile != "", "nats: both password_file and HEELER_NATS_PASSWORD are given")
	fault(c.NATS.Token != "" && c.NATS.TokenFile != "", "nats: both token_file and HEELER_NATS_TOKEN are given")
	fault((c.NATS.Password != "" || c.NATS.PasswordFile != "") && c.NATS.User == "", "nats.user: missing beside the password")
	fault((c.NATS.TLS.Cert == "") != (c.NATS.TLS.Key == ""), "nats.tls: cert and key go together")
	fault(c.NATS.BufferSamples < 1, "nats.buffer_samples: less than one")
	fault(c.Spool.MaxBytes < 1<<16, "spool.max_bytes: less than 64 KiB")
	fault(!strings.HasPrefix(c.Outbox.Path, "/"), "outbox.path: %q is not absolute", c.Outbox.Path)
	fault(c.Outbox.MaxFiles < 1, "outbox.max_files: less than one")
	fault(c.Outbox.MaxBytes < 1<<16, "outbox.max_bytes: less than 64 KiB")
	fault(c.StateDir == "", "state_dir: empty")
	fault(c.Log.Format != "text" && c.Log.Format != "json", "log.format: %q is neither text nor json", c.Log.Format)
	fault(c.Log.Level != "debug" && c.Log.Level != "info" && c.Log.Level != "warn" && c.Log.Level != "error",
		"log.level: %q is none of debug, info, warn, error", c.Log.Level)
	return faults
}

// Print writes the configuration in force as TOML, without secrets.
func (c *Config) Print() (string, error) {
	shown := *c
	shown.NATS.Servers = slices.Clone(c.NATS.Servers)
	for i, server := range shown.NATS.Servers {
		if u, err := url.Parse(server); err == nil && u.User != nil {
			shown.NATS.Servers[i] = u.Redacted()
		}
	}
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.Indent = ""
	err := e.Encode(shown)
	return b.String(), err
}
