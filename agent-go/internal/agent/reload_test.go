//go:build cgo

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/control"
	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/agent-go/internal/sdnotify"
	"heeler.dev/schemas/go/heelerv1"
)

// file is the configuration that the next reload finds.
type file struct {
	mu  sync.Mutex
	c   config.Config
	err error
}

func (f *file) load() (config.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.c, f.err
}

func (f *file) write(err error, change func(c *config.Config)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	change(&f.c)
}

func reloadable(s *site) (*file, chan os.Signal) {
	f := &file{c: s.config}
	hangup := make(chan os.Signal, 1)
	s.agent.Load, s.agent.Hangup = f.load, hangup
	return f, hangup
}

func TestReloadsLoseNoEventAndSendNoneTwice(t *testing.T) {
	s := newSite(t)
	f, hangup := reloadable(s)
	s.run()
	pci := *wait(s, "a sample", anySample).GPU.PCI[2]
	const rounds, each = 6, 20
	seq := 10
	for round := range rounds {
		f.write(nil, func(c *config.Config) {
			c.Window.Duration = time.Duration(1+round%2) * 200 * time.Millisecond
			if round%3 == 0 { // the same bus by another name: a new connection
				c.NATS.Servers = []string{fmt.Sprintf("nats://localhost:%d#%d", s.server.Addr().(*net.TCPAddr).Port, round)}
			}
		})
		hangup <- syscall.SIGHUP
		for range each {
			seq++
			s.log(fmt.Sprintf("4,%d,%d,-;NVRM: Xid (PCI:%s): %d, pid=1, name=a, Ch 00000001", seq, seq, pci, 1000+seq))
			time.Sleep(3 * time.Millisecond)
		}
	}
	wait(s, "the last event", func(m *heelerv1.KernelEvent) bool { return m.Code != nil && *m.Code == uint64(1000+seq) })
	wait(s, "a sample of the longer window", func(m *heelerv1.GpuSample) bool { return m.WindowNS == 4e8 })
	stream, err := s.js.Stream(context.Background(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != rounds*each {
		t.Errorf("the stream holds %d events, not %d", n, rounds*each)
	}
}

func TestABadConfigurationIsRefusedAsAWhole(t *testing.T) {
	s := newSite(t)
	f, _ := reloadable(s)
	s.run()
	wait(s, "a sample", anySample)
	f.write(errors.Join(errors.New("first fault"), errors.New("second fault")), func(*config.Config) {})
	a := s.ask(control.Request{Command: CommandReload})
	if a.OK || !strings.Contains(a.Text, "first fault\nsecond fault") {
		t.Errorf("%+v", a)
	}
	f.write(nil, func(c *config.Config) { c.Cluster, c.StateDir, c.Window.Duration = "south", "/elsewhere", time.Second })
	a = s.ask(control.Request{Command: CommandReload})
	if a.OK || !strings.Contains(a.Text, `cluster: a change from "north" to "south" takes a restart`) ||
		!strings.Contains(a.Text, "state_dir") {
		t.Errorf("%+v", a)
	}
	f.write(nil, func(c *config.Config) {
		*c = s.config
		c.NATS.Creds = "/nonexistent/creds" // as after a mistake in the name
	})
	if a = s.ask(control.Request{Command: CommandReload}); a.OK || !strings.Contains(a.Text, "/nonexistent/creds") {
		t.Errorf("%+v", a)
	}
	s.forget()
	wait(s, "the old window", func(m *heelerv1.GpuSample) bool { return m.WindowNS == uint64(s.config.Window.Duration) })
	wait(s, "all are well", hasState("nvml", heelerv1.CollectorOK, ""))
}

func TestAReloadSwitchesCollectorsAndTheLevelOfTheLog(t *testing.T) {
	open := fakenvml.Holding(t)
	s := newSite(t)
	f, _ := reloadable(s)
	s.agent.Level = &slog.LevelVar{}
	s.run()
	wait(s, "a sample", anySample)
	f.write(nil, func(c *config.Config) { c.Collectors.NVML, c.Log.Level = false, "error" })
	if a := s.ask(control.Request{Command: CommandReload}); !a.OK {
		t.Fatalf("%+v", a)
	}
	if open() || s.agent.Level.Level() != slog.LevelError {
		t.Errorf("open %v, level %s", open(), s.agent.Level.Level())
	}
	wait(s, "it is off", hasState("nvml", heelerv1.CollectorOff, "switched off"))
	f.write(nil, func(c *config.Config) { c.Collectors.NVML = true })
	if a := s.ask(control.Request{Command: CommandReload}); !a.OK {
		t.Fatalf("%+v", a)
	}
	s.forget()
	wait(s, "a sample again", anySample)
}

func TestAHangingGPUIsNotEnteredAgainAfterAReload(t *testing.T) {
	s := newSite(t)
	s.closeAfterwards()
	s.config.Collectors.NVMLEvents = false // opening the events waits for a GPU that hangs, for a while
	_, hangup := reloadable(s)
	s.run()
	wait(s, "a sample", anySample)
	s.scenario.Set("all busy\n3 hang all")
	wait(s, "a hung GPU", func(m *heelerv1.GpuSample) bool { return *m.State[3] == heelerv1.GpuHung })
	before := threads(t)
	for range 5 {
		hangup <- syscall.SIGHUP
		s.forget()
		wait(s, "the others are read on", func(m *heelerv1.GpuSample) bool {
			return *m.State[3] == heelerv1.GpuHung && *m.State[4] == heelerv1.GpuOK
		})
	}
	if after := threads(t); after > before+3 {
		t.Errorf("%d threads, %d after five reloads", before, after)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// manager is a socket as systemd's, and the words that arrive there.
func manager(t *testing.T, watchdog time.Duration) (*sdnotify.Notifier, <-chan string) {
	t.Helper()
	path := filepath.Join(shortDir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	words := make(chan string, 1000)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			words <- string(b[:n])
		}
	}()
	env := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": fmt.Sprint(watchdog.Microseconds())}
	return sdnotify.FromEnvironment(func(key string) string { return env[key] }, os.Getpid()), words
}

func hear(t *testing.T, words <-chan string, begin string) {
	t.Helper()
	deadline := time.After(15 * time.Second)
	for {
		select {
		case word := <-words:
			if strings.HasPrefix(word, begin) {
				return
			}
		case <-deadline:
			t.Fatalf("never heard: %s", begin)
		}
	}
}

func TestTheServiceManagerHearsOfTheAgentsLife(t *testing.T) {
	s := newSite(t)
	s.closeAfterwards()
	_, hangup := reloadable(s)
	var words <-chan string
	s.agent.Notify, words = manager(t, 100*time.Millisecond)
	stop := s.run()
	hear(t, words, "READY=1")
	hear(t, words, "WATCHDOG=1")
	s.scenario.Set("all busy\n3 hang all")
	wait(s, "a hung GPU", func(m *heelerv1.GpuSample) bool { return *m.State[3] == heelerv1.GpuHung })
	for len(words) > 0 {
		<-words
	}
	hear(t, words, "WATCHDOG=1") // a restart would not mend the GPU
	hangup <- syscall.SIGHUP
	hear(t, words, "RELOADING=1\nMONOTONIC_USEC=")
	hear(t, words, "READY=1")
	hear(t, words, "STATUS=bus ")
	stop()
	hear(t, words, "STOPPING=1")
}

func TestAnAgentThatStandsStillDoesNotFeedTheWatchdog(t *testing.T) {
	p := &process{Agent: &Agent{Log: quiet}}
	var words <-chan string
	p.Notify, words = manager(t, time.Minute)
	p.change.lock() // a reload that never ends
	now := time.Now()
	p.lookAfter(context.Background(), now)
	hear(t, words, "WATCHDOG=1")
	p.lookAfter(context.Background(), now.Add(longestChange+time.Minute))
	hear(t, words, "STATUS=not well: a reload")
	if len(words) > 0 {
		t.Errorf("then heard %q", <-words)
	}
}
