package sdnotify

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manager is a socket as systemd's, and what arrives there.
func manager(t *testing.T, name string) (string, func() string) {
	t.Helper()
	if name == "" {
		name = filepath.Join(t.TempDir(), "notify")
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return name, func() string {
		t.Helper()
		b := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func environment(pairs ...string) func(string) string {
	return func(key string) string {
		for _, p := range pairs {
			if v, ok := strings.CutPrefix(p, key+"="); ok {
				return v
			}
		}
		return ""
	}
}

func TestOneDatagramReachesTheManager(t *testing.T) {
	for _, name := range []string{"", "@heeler-sdnotify-test"} {
		socket, next := manager(t, name)
		n := FromEnvironment(environment("NOTIFY_SOCKET="+socket), 1)
		if err := n.Send(Ready, Status("8 GPUs,\n bus connected")); err != nil {
			t.Fatal(err)
		}
		if got := next(); got != "READY=1\nSTATUS=8 GPUs, bus connected" {
			t.Errorf("got %q", got)
		}
		if err := n.Send(Reloading()...); err != nil {
			t.Fatal(err)
		}
		if got := next(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
			t.Errorf("got %q", got)
		}
	}
}

func TestTheWatchdogIsMeantForOneProcess(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want time.Duration
	}{
		{nil, 0},
		{[]string{"WATCHDOG_USEC=30000000"}, 30 * time.Second},
		{[]string{"WATCHDOG_USEC=30000000", "WATCHDOG_PID=7"}, 30 * time.Second},
		{[]string{"WATCHDOG_USEC=30000000", "WATCHDOG_PID=8"}, 0},
		{[]string{"WATCHDOG_USEC=-1"}, 0},
		{[]string{"WATCHDOG_USEC=soon"}, 0},
	} {
		if got := FromEnvironment(environment(c.env...), 7).WatchdogEvery; got != c.want {
			t.Errorf("%v: %s", c.env, got)
		}
	}
}

func TestWithoutAManagerNothingIsSaid(t *testing.T) {
	var none *Notifier
	if err := none.Send(Ready); err != nil {
		t.Error(err)
	}
	if err := FromEnvironment(environment(), 1).Send(Ready); err != nil {
		t.Error(err)
	}
	if err := FromEnvironment(environment("NOTIFY_SOCKET=/nonexistent/socket"), 1).Send(Ready); err == nil {
		t.Error("a manager that is gone is no fault")
	}
}
