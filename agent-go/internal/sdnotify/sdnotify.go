// Package sdnotify tells systemd how the service is doing, by datagrams to the socket that it names in the
// environment. Without one, nothing is said.
package sdnotify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"heeler.dev/agent-go/internal/hostfs"
)

// What is said. See sd_notify(3).
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Watchdog = "WATCHDOG=1"
)

// Notifier sends to systemd. The zero value sends nothing.
type Notifier struct {
	socket string
	// WatchdogEvery is how often systemd wants to hear that the service is alive; zero where it does not.
	WatchdogEvery time.Duration
}

// FromEnvironment finds the socket, and the watchdog's time if it is meant for this process.
func FromEnvironment(getenv func(string) string, pid int) *Notifier {
	n := &Notifier{socket: getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return n
	}
	if of := getenv("WATCHDOG_PID"); of != "" && of != strconv.Itoa(pid) {
		return n
	}
	n.WatchdogEvery = time.Duration(usec) * time.Microsecond
	return n
}

// sendTime bounds a send: a manager that does not read must not hold the agent up.
const sendTime = time.Second

// Send sends some of NAME=value in one datagram.
func (n *Notifier) Send(lines ...string) error {
	if n == nil || n.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	return nil
}

// Reloading is what is sent before a reload; Ready ends it.
func Reloading() []string {
	lines := []string{"RELOADING=1"}
	if now, err := hostfs.Monotonic(); err == nil {
		lines = append(lines, "MONOTONIC_USEC="+strconv.FormatInt(now.Microseconds(), 10))
	}
	return lines
}

// Status is one line for `systemctl status`.
func Status(text string) string {
	return "STATUS=" + strings.Join(strings.Fields(text), " ")
}
