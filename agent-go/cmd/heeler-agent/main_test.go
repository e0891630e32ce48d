package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heeler.dev/agent-go/internal/control"
)

func dispatched(t *testing.T, stdin string, args ...string) (string, string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := dispatch(args, strings.NewReader(stdin), &stdout, &stderr)
	return stdout.String(), stderr.String(), err
}

func TestParseKmsgWritesOneEventALine(t *testing.T) {
	const input = `5,1,1,-;Linux version
4,2,2,-;NVRM: GPU at PCI:0000:3b:00: GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000
4,3,3,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
 SUBSYSTEM=pci
12,4,4,-;NVRM: Xid (PCI:0000:3b:00): 48, forged
{"MESSAGE":null}
[   12.345678] nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 text
`
	stdout, stderr, err := dispatched(t, input, "parse", "kmsg")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d events:\n%s", len(lines), stdout)
	}
	var xid struct {
		Kind    string
		Code    int
		UUID    string
		Trusted bool
	}
	if err := json.Unmarshal([]byte(lines[1]), &xid); err != nil {
		t.Fatal(err)
	}
	if xid.Code != 79 || xid.UUID != "GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000" || !xid.Trusted {
		t.Errorf("got %+v", xid)
	}
	if want := "lines 6, events 3, unmatched 1, not from the kernel 1, unreadable 1\n"; stderr != want {
		t.Errorf("got %q, want %q", stderr, want)
	}
	stdout, _, err = dispatched(t, input, "parse", "kmsg", "-any-facility")
	if err != nil || strings.Count(stdout, "\n") != 4 || !strings.Contains(stdout, `"trusted":false`) {
		t.Errorf("%v:\n%s", err, stdout)
	}
}

func TestParseKmsgReadsOnWhateverStandsBetween(t *testing.T) {
	const xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
	long := strings.Repeat("A", 1<<20)
	for name, c := range map[string]struct {
		input  string
		events int
	}{
		"nothing":           {"", 0},
		"CRLF":              {"4,1,1,-;" + xid + "\r\n4,2,2,-;" + xid + "\r\n", 2},
		"no end":            {xid, 1},
		"a mebibyte":        {long + "\n" + xid + "\n", 1},
		"more":              {long + long + long + "\n" + xid, 1},
		"a mebibyte of XID": {xid + long + "\n" + xid, 2},
		"NULs":              {"\x00\x00\x00" + xid + "\x00\n\x00\n" + xid, 2},
		"not UTF-8":         {"\xff\xfe\n" + xid + "\xff\n", 1},
		"broken JSON":       {"{\"MESSAGE\":\n" + xid, 1},
		"lines under lines": {"[ 1.5] NVRM: The NVIDIA GPU 0000:b3:00.0\n       NVRM: installed in this system has\n       NVRM: fallen off the bus and is not responding to commands.\n", 1},
	} {
		stdout, stderr, err := dispatched(t, c.input, "parse", "kmsg")
		if got := strings.Count(stdout, "\n"); err != nil || got != c.events || !strings.Contains(stderr, "lines ") {
			t.Errorf("%s: %d events, %v\n%s", name, got, err, stderr)
		}
	}
	if _, _, err := dispatched(t, "", "parse", "kmsg", "file"); err == nil {
		t.Error("a file name is taken without a word")
	}
}

func TestCommands(t *testing.T) {
	if out, _, err := dispatched(t, "", "version"); err != nil || !strings.HasPrefix(out, "heeler-agent ") {
		t.Errorf("%q, %v", out, err)
	}
	for _, args := range [][]string{
		{}, {"nonsense"}, {"parse"}, {"parse", "kmsg", "file"}, {"config"}, {"config", "show"}, {"version", "now"}, {"run", "now"}, {"once", "-x"},
		{"config", "print", "-set"}, {"release"}, {"release", "soon"}, {"release", "1m", "2m"}, {"release", "1m", "-job", "1"},
		{"pause-gpm"}, {"resume", "1m"}, {"status", "-job", "1"}, {"reload", "-json"},
	} {
		_, _, err := dispatched(t, "", args...)
		if !errors.Is(err, errUsage) || exitStatus(err, io.Discard) != wrong {
			t.Errorf("%v: %v", args, err)
		}
	}
	out, _, err := dispatched(t, "", "config", "print", "-set", "cluster=c", "-set", "boot_id=b")
	if err != nil || !strings.Contains(out, `cluster = "c"`) {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, _, err := dispatched(t, "", "config", "print", "-set", "boot_id=b"); err == nil {
		t.Error("no cluster is no fault")
	}
}

func TestCommandsToARunningAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "ha") // a socket's path must not be long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "control.sock")
	_, _, err = dispatched(t, "", "release", "10m", "-socket", socket)
	if exitStatus(err, io.Discard) != noAgent || !strings.Contains(err.Error(), socket) {
		t.Errorf("without an agent: %v", err)
	}
	var asked control.Request
	server, err := control.Listen(socket, func(_ context.Context, r control.Request, _ control.Peer) control.Answer {
		asked = r
		a := control.Answer{OK: r.Command != "reload", Text: "well"}
		a.Status = []byte(`{"version":"1","node":"n","collectors":{"nvml":{"state":"off","why":"released"}}}`)
		return a
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go server.Run(ctx)
	for _, c := range []struct {
		words string
		want  control.Request
		out   string
	}{
		{"release 10m -socket S", control.Request{Command: "release", For: "10m"}, "well\n"},
		{"pause-gpm -job 7 1h -socket=S", control.Request{Command: "pause-gpm", For: "1h", Job: "7"}, "well\n"},
		{"resume --socket S --job 7", control.Request{Command: "resume", Job: "7"}, "well\n"},
		{"status -json -socket S", control.Request{Command: "status"}, `{"version":"1"`},
		{"status -socket S", control.Request{Command: "status"}, "  nvml         off      released\n"},
	} {
		out, _, err := dispatched(t, "", strings.Fields(strings.ReplaceAll(c.words, "S", socket))...)
		if err != nil || asked != c.want || !strings.Contains(out, c.out) {
			t.Errorf("%s: asked %+v, %v: %s", c.words, asked, err, out)
		}
	}
	if _, _, err := dispatched(t, "", "reload", "-socket", socket); exitStatus(err, io.Discard) != failed {
		t.Errorf("refused: %v", err)
	}
}

// TestTheAgentRunsNoCommands keeps the charter: it reads files and calls libraries. Helpers of tests may run commands,
// and the option that runs DCGM's.
func TestTheAgentRunsNoCommands(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "fakenvml") || filepath.Base(filepath.Dir(path)) == "dcgm" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			if i.Path.Value == `"os/exec"` {
				t.Errorf("%s imports os/exec", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
