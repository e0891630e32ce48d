package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve answers what was asked, at a socket of its own, until the test ends.
func serve(t *testing.T, handle Handler) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	start(t, path, handle)
	return path
}

func start(t *testing.T, path string, handle Handler) func() {
	t.Helper()
	s, err := Listen(path, handle, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func echo(_ context.Context, r Request, from Peer) Answer {
	return Done("%s for %q job %q by %s", r.Command, r.For, r.Job, from)
}

func ask(t *testing.T, path string, r Request) (Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return Ask(ctx, path, r)
}

func TestARequestIsAnsweredWithWhoAsked(t *testing.T) {
	path := serve(t, echo)
	a, err := ask(t, path, Request{Command: "release", For: "10m", Job: "7"})
	want := fmt.Sprintf(`release for "10m" job "7" by pid %d uid %d`, os.Getpid(), os.Getuid())
	if err != nil || !a.OK || a.Text != want {
		t.Errorf("%+v, %v", a, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
		t.Errorf("mode %s, %v", info.Mode(), err)
	}
}

func TestGarbageIsAnsweredAndTheNextClientIsServed(t *testing.T) {
	path := serve(t, echo)
	for _, text := range []string{
		"\n", "release 10m\n", "{\n", "[1]\n", `{"command":5}` + "\n", "\x00\xff\xfe\n",
		strings.Repeat("x", 2*longestLine) + "\n", `{"command":"` + strings.Repeat("x", 2*longestLine),
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		var a Answer
		line, err := bufio.NewReader(conn).ReadBytes('\n')
		// A client that goes on writing more than is read may be cut off before it has its answer.
		if err == nil && (json.Unmarshal(line, &a) != nil || a.OK || a.Text == "") || err != nil && len(text) < longestLine {
			t.Errorf("%.20q: %q, %v", text, line, err)
		}
		_ = conn.Close()
	}
	if a, err := ask(t, path, Request{Command: "status"}); err != nil || !a.OK {
		t.Errorf("then %+v, %v", a, err)
	}
}

func TestSlowClientsHoldNobodyUp(t *testing.T) {
	path := serve(t, echo)
	for range mostAtAll - 1 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	begun := time.Now()
	if a, err := ask(t, path, Request{Command: "status"}); err != nil || !a.OK || time.Since(begun) > requestTime/2 {
		t.Errorf("%+v, %v after %s", a, err, time.Since(begun))
	}
}

func TestAHandlerThatPanicsIsAnAnswer(t *testing.T) {
	path := serve(t, func(context.Context, Request, Peer) Answer { panic("boom") })
	if a, err := ask(t, path, Request{}); err != nil || a.OK || !strings.Contains(a.Text, "boom") {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestWithoutAnAgentTheErrorSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	if _, err := ask(t, path, Request{}); !errors.Is(err, ErrNoAgent) {
		t.Errorf("got %v", err)
	}
}

func TestASocketIsTakenOverFromADeadAgentOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	start(t, path, echo)
	if _, err := Listen(path, echo, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("the socket of a living agent was taken")
	}
	if a, err := ask(t, path, Request{}); err != nil || !a.OK {
		t.Errorf("%+v, %v", a, err)
	}
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, echo, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file was taken for a socket")
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestTheSocketIsGoneWhenTheServerEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	start(t, path, echo)()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyRootTheAgentsUserAndItsGroupMayAsk(t *testing.T) {
	own, group := uint32(os.Geteuid()), uint32(os.Getegid())
	other := own + 4242
	for _, c := range []struct {
		peer   Peer
		groups []uint32
		want   bool
	}{
		{Peer{UID: 0, GID: other}, nil, true},
		{Peer{UID: own, GID: other}, nil, true},
		{Peer{UID: other, GID: group}, nil, true},
		{Peer{UID: other, GID: other}, []uint32{1, group}, true},
		{Peer{UID: other, GID: other}, []uint32{1, 2}, group == 1 || group == 2},
	} {
		if got := allowed(c.peer, c.groups); got != c.want {
			t.Errorf("%+v %v: %v", c.peer, c.groups, got)
		}
	}
}
