package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

func load(t *testing.T, text string, settings ...string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, settings, func(key string) string { return map[string]string{"HEELER_NATS_TOKEN": "secret"}[key] })
}

func TestASmallFileIsEnough(t *testing.T) {
	c, err := load(t, "cluster = 'c'\nboot_id = 'b'\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Node == "" || strings.Contains(c.Node, ".") || c.Window.Duration != 10*time.Second || c.NATS.Token != "secret" {
		t.Errorf("got %+v", c)
	}
}

func TestAllFaultsAreListedAtOnce(t *testing.T) {
	_, err := load(t, `
cluster = ""
node = "a\nb"
boot_id = "b"
interval = "3s"
windw = "1s"
[nats]
server = "x"
servers = []
[spool]
grace = "1s"
[log]
format = "xml"
`)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{
		"cluster: empty", "node: name has a control", "unknown key windw", "unknown key nats.server", "nats.servers: none",
		"multiple of interval", "spool.grace", "log.format",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("not told: %s\n%v", part, err)
		}
	}
}

func TestSettingsOverrideTheFile(t *testing.T) {
	c, err := load(t, "cluster = 'c'\nboot_id = 'b'\n", "window=2s", "nats.servers=['nats://a:1','nats://b:2']",
		"collectors.ib=false", "node=gn1")
	if err != nil {
		t.Fatal(err)
	}
	if c.Window.Duration != 2*time.Second || len(c.NATS.Servers) != 2 || c.Collectors.IB || c.Node != "gn1" {
		t.Errorf("got %+v", c)
	}
	if _, err := load(t, "cluster = 'c'\nboot_id = 'b'\n", "windo=2s", "nonsense"); err == nil ||
		!strings.Contains(err.Error(), "unknown key windo") || !strings.Contains(err.Error(), "not key=value") {
		t.Errorf("got %v", err)
	}
}

func TestThePrintedConfigurationHasNoSecretsAndCanBeRead(t *testing.T) {
	c, err := load(t, "cluster = 'c'\nboot_id = 'b'\n")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Print()
	if err != nil || strings.Contains(text, "secret") {
		t.Fatalf("%s, %v", text, err)
	}
	if _, err := load(t, text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestTheFileOfThePackagesHasEveryKeyWithItsDefault keeps deploy/packages/agent.toml true.
func TestTheFileOfThePackagesHasEveryKeyWithItsDefault(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/packages/agent.toml")
	if err != nil {
		t.Skip("no packages beside this module")
	}
	text := regexp.MustCompile(`(?m)^#(\w)`).ReplaceAllString(string(data), "$1")
	var got Config
	meta, err := toml.Decode(text, &got)
	if err != nil || len(meta.Undecoded()) > 0 {
		t.Fatalf("%v, unknown keys %v", err, meta.Undecoded())
	}
	var all Config
	printed, err := (&all).Print()
	if err != nil {
		t.Fatal(err)
	}
	every, err := toml.Decode(printed, &all)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range every.Keys() {
		if !meta.IsDefined(key...) {
			t.Errorf("not there: %s", key)
		}
	}
	if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", Default()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBadTOMLIsAFault(t *testing.T) {
	if _, err := load(t, "cluster = \n"); err == nil {
		t.Error("accepted")
	}
	if _, err := load(t, "cluster='c'\ninterval='1'\nboot_id='b'"); err == nil {
		t.Error("a duration without a unit is accepted")
	}
}

func TestSecretsComeFromFilesAndTheEnvironmentAndAreNotPrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.toml")
	text := `cluster = "c"
boot_id = "b"
[nats]
servers = ["nats://me:hidden@a:4222", "tls://b"]
user = "agent"
password_file = "$CREDENTIALS_DIRECTORY/nats-password"
[nats.tls]
key = "${CREDENTIALS_DIRECTORY}/key.pem"
cert = "/etc/$other/cert.pem"
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, nil, func(key string) string {
		return map[string]string{"CREDENTIALS_DIRECTORY": "/run/credentials/x", "HEELER_NATS_USER": "other"}[key]
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.NATS.PasswordFile != "/run/credentials/x/nats-password" || c.NATS.TLS.Key != "/run/credentials/x/key.pem" ||
		c.NATS.TLS.Cert != "/etc/$other/cert.pem" || c.NATS.User != "other" {
		t.Errorf("got %+v", c.NATS)
	}
	printed, err := c.Print()
	if err != nil || strings.Contains(printed, "hidden") || !strings.Contains(printed, "nats://me:xxxxx@a:4222") {
		t.Errorf("%v\n%s", err, printed)
	}
	if c.NATS.Servers[0] != "nats://me:hidden@a:4222" {
		t.Error("printing changed what is in force")
	}
}

func TestOneWayToSayWhoTheAgentIs(t *testing.T) {
	for set, want := range map[string]string{
		"nats.creds=a nats.nkey=b": "creds and nkey and token are given",
		"nats.creds=a nats.user=b": "creds and user and token are given",
		"nats.token_file=a":        "both token_file and HEELER_NATS_TOKEN",
		"nats.password_file=a":     "nats.user: missing",
	} {
		if _, err := load(t, "cluster = 'c'\nboot_id = 'b'\n", strings.Fields(set)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", set, err, want)
		}
	}
}

func TestFieldsOfDCGMThatTheAgentDoesNotKnowAreAFault(t *testing.T) {
	c, err := load(t, "cluster = 'c'\nboot_id = 'b'\n[dcgm]\nenabled = true\nfields = [1002, 1004]\nhost = 'e:5555'\n")
	if err != nil || !c.DCGM.Enabled || len(c.DCGM.Fields) != 2 || c.DCGM.Command[0] != "dcgmi" {
		t.Errorf("got %+v, %v", c.DCGM, err)
	}
	_, err = load(t, "cluster = 'c'\nboot_id = 'b'\n[dcgm]\nfields = [155]\ncommand = []\ninterval = '1ms'\n")
	for _, part := range []string{"dcgm.fields: 155", "dcgm.command: empty", "dcgm.interval"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("not told: %s\n%v", part, err)
		}
	}
}
