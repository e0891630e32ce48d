//go:build cgo

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/schemas/go/heelerv1"
)

// site is a bus with one node.
type site struct {
	t        *testing.T
	server   *server.Server
	config   config.Config
	agent    Agent // what a test wants to be different
	scenario *fakenvml.Scenario
	js       jetstream.JetStream

	mu  sync.Mutex
	got []heelerv1.Message
}

func newSite(t *testing.T) *site {
	t.Helper()
	library := fakenvml.Build(t)
	s := &site{t: t, scenario: fakenvml.Follow(t, "all busy")}
	t.Cleanup(func() { s.scenario.Set("gpus 8") })
	var err error
	s.server, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.server.Start()
	t.Cleanup(s.server.Shutdown)
	if !s.server.ReadyForConnections(5 * time.Second) {
		t.Fatal("server does not start")
	}
	s.listen()
	dir := t.TempDir()
	c := config.Default()
	every := config.Duration{Duration: 200 * time.Millisecond}
	c.Cluster, c.Node, c.BootID, c.StateDir = "north", "gpu.node 1", "boot-1", filepath.Join(dir, "state")
	c.Interval, c.Window, c.StatusInterval = every, every, every
	c.NATS.Servers, c.NATS.ConnectJitter = []string{s.server.ClientURL()}, config.Duration{}
	c.Kmsg.Path, c.NVML.Library = filepath.Join(dir, "kmsg"), library
	c.NVML.HangAfter = every
	c.ControlSocket = filepath.Join(shortDir(t), "control.sock")
	s.config = c
	s.log("6,0,1,-;Linux version")
	return s
}

// closeAfterwards closes the library that an agent had to leave open since a call hung, once the agent has ended.
func (s *site) closeAfterwards() {
	s.t.Cleanup(func() {
		s.scenario.Set("gpus 8")
		time.Sleep(50 * time.Millisecond) // the call returns
		s.agent.Library.Shutdown()
	})
}

// shortDir is for sockets, whose paths must not be long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ha")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// listen decodes all that is published. A message that breaks the contract fails the test.
func (s *site) listen() {
	nc, err := nats.Connect(s.server.ClientURL())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	if s.js, err = jetstream.New(nc); err != nil {
		s.t.Fatal(err)
	}
	for name, subjects := range map[string][]string{
		"EVENTS": {"heeler.v1.*.kernel.event.*"}, "AGENTS": {"heeler.v1.*.agent.*.*"},
	} {
		if _, err := s.js.CreateStream(context.Background(), jetstream.StreamConfig{Name: name, Subjects: subjects}); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := nc.Subscribe("heeler.v1.>", s.take); err != nil {
		s.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) take(m *nats.Msg) {
	message, err := heelerv1.DecodeAs(m.Header.Get(heelerv1.HeaderType), m.Data)
	if err != nil {
		s.t.Errorf("%s: %v", m.Subject, err)
		return
	}
	if subject, err := message.Subject(); err != nil || subject != m.Subject {
		s.t.Errorf("on %s, not on %s: %v", m.Subject, subject, err)
	}
	if ct := m.Header.Get(heelerv1.HeaderContentType); ct != heelerv1.ContentType {
		s.t.Errorf("content type %q", ct)
	}
	sample := strings.HasSuffix(message.Type(), "Sample")
	if id := m.Header.Get(heelerv1.HeaderMsgID); (id == "") != sample {
		s.t.Errorf("%s has the id %q", message.Type(), id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, message)
}

// run starts the agent and returns how to stop it.
func (s *site) run() func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if s.agent.Library == nil {
		s.agent.Library = nvml.Open(s.config.NVML.Library)
	}
	a := s.agent
	a.Config, a.Version = s.config, "test"
	if a.Log == nil {
		a.Log = quiet
	}
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					s.t.Error(err)
				}
			case <-time.After(8 * time.Second):
				s.t.Error("the agent does not end")
			}
		})
	}
	s.t.Cleanup(stop)
	return stop
}

func (s *site) log(record string) {
	s.t.Helper()
	f, err := os.OpenFile(s.config.Kmsg.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(record + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits for a message of a type that passes.
func wait[M heelerv1.Message](s *site, what string, ok func(M) bool) M {
	s.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for time.Now().Before(deadline) {
		s.mu.Lock()
		for _, m := range s.got {
			if typed, is := m.(M); is && ok(typed) {
				s.mu.Unlock()
				return typed
			}
		}
		s.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatalf("never: %s", what)
	panic("unreachable")
}

func (s *site) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = nil
}

const xid79 = "NVRM: Xid (PCI:%s): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

func TestANodeFromEndToEnd(t *testing.T) {
	s := newSite(t)
	stop := s.run()
	sample := wait(s, "a sample of eight GPUs", func(m *heelerv1.GpuSample) bool {
		return len(m.GPU.UUID) == 8 && m.Mean["power_w"] != nil
	})
	inventory := wait(s, "an inventory", func(m *heelerv1.Inventory) bool { return len(m.GPUs) == 8 })
	if inventory.GPUs[3].UUID != sample.GPU.UUID[3] || inventory.Driver == "" || inventory.Digest == "" {
		t.Errorf("inventory %+v", inventory)
	}
	status := wait(s, "a status that knows the inventory", func(m *heelerv1.AgentStatus) bool {
		return m.Inventory == inventory.Digest && m.Collectors["kmsg"].State == heelerv1.CollectorOK
	})
	if status.Collectors["nvml"].State != heelerv1.CollectorOK || status.Collectors["ib"].State == heelerv1.CollectorOK &&
		!hasIB() || status.Version != "test" || status.RSSBytes == nil || status.Goroutines == nil || status.OpenFDs == nil {
		t.Errorf("status %+v", status)
	}
	time.Sleep(200 * time.Millisecond) // the log's backlog is read
	s.scenario.Set("all busy\n2 lost")
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	s.log("4,7,5,-;" + fmt.Sprintf(xid79, *sample.GPU.PCI[2]))
	event := wait(s, "the XID", func(m *heelerv1.KernelEvent) bool { return m.Kind == heelerv1.KindXid })
	if event.UUID != sample.GPU.UUID[2] || event.GpuState != heelerv1.GpuLost || *event.Code != 79 {
		t.Errorf("event %+v", event)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("the event took %s", took)
	}
	wait(s, "a sample with the lost GPU", func(m *heelerv1.GpuSample) bool { return *m.State[2] == heelerv1.GpuLost })
	stop()
	s.forget()
	s.log("4,8,6,-;" + fmt.Sprintf("NVRM: Xid (PCI:%s): 45, pid=1, name=a, Ch 00000001", *sample.GPU.PCI[1]))
	stop = s.run()
	wait(s, "the XID of the time between", func(m *heelerv1.KernelEvent) bool { return m.Code != nil && *m.Code == 45 })
	stop()
	// The agent may send again what was acknowledged just before it ended; the stream knows it by its id.
	stream, err := s.js.Stream(context.Background(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("the stream holds %d events, not 2", n)
	}
}

func hasIB() bool {
	entries, err := os.ReadDir("/sys/class/infiniband")
	return err == nil && len(entries) > 0
}

func TestAHangingGPUStopsNeitherTheOthersNorTheEnd(t *testing.T) {
	s := newSite(t)
	s.closeAfterwards()
	stop := s.run()
	wait(s, "a sample", func(m *heelerv1.GpuSample) bool { return m.Mean["power_w"] != nil })
	s.scenario.Set("all busy\n3 hang all")
	hung := time.Now()
	wait(s, "a sample with the hanging GPU", func(m *heelerv1.GpuSample) bool {
		_, others := m.Mean["power_w"][4].Float()
		return *m.State[3] == heelerv1.GpuHung && others
	})
	if took := time.Since(hung); took > 4*time.Second {
		t.Errorf("that took %s", took)
	}
	status := wait(s, "a status that says so", func(m *heelerv1.AgentStatus) bool {
		return m.Collectors["nvml"].State == heelerv1.CollectorHung
	})
	if nvml := status.Collectors["nvml"]; nvml.Counts["hung"] != 1 || !strings.Contains(nvml.Why, "silent for") {
		t.Errorf("status %+v", nvml)
	}
	start := time.Now()
	stop()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the end took %s", took)
	}
}

func TestOnceNeedsNoBusAndLeavesNothingBehind(t *testing.T) {
	library := fakenvml.Build(t)
	fakenvml.Follow(t, "gpus 2\nall busy")
	c := config.Default()
	c.Cluster, c.Node, c.BootID, c.NVML.Library, c.Sys = "north", "gn1", "b", library, t.TempDir()
	c.StateDir = filepath.Join(t.TempDir(), "state")
	c.Kmsg.Path = filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(c.Kmsg.Path, []byte("6,0,1,-;Linux version\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state := c.StateDir
	var b bytes.Buffer
	if err := Once(context.Background(), &c, nvml.Open(library), "test", &b, quiet); err != nil {
		t.Fatal(err)
	}
	var got struct {
		GpuSample struct {
			Mean map[string][]float64 `json:"mean"`
		}
		Inventory   struct{ GPUs []any }
		AgentStatus struct {
			Collectors map[string]struct{ State string } `json:"collectors"`
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if len(got.GpuSample.Mean["sm_active_ratio"]) != 2 || len(got.Inventory.GPUs) != 2 ||
		got.AgentStatus.Collectors["nvml"].State != "ok" || got.AgentStatus.Collectors["gpm"].State != "ok" ||
		got.AgentStatus.Collectors["kmsg"].State != "ok" || got.AgentStatus.Collectors["nvml_events"].State != "ok" ||
		got.AgentStatus.Collectors["dcgm"].State == "ok" || got.AgentStatus.Collectors["ib"].State != "absent" {
		t.Errorf("got %s", b.String())
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("it left something behind")
	}
}

func TestNumbersAreNotUsedTwice(t *testing.T) {
	a := newStamper("c", "n", "b")
	first := &heelerv1.AgentStatus{}
	for range 10 {
		if err := a.stamp(first); err != nil {
			t.Fatal(err)
		}
		first.Seq = 0
	}
	used := a.seq.Load()
	time.Sleep(20 * time.Millisecond)
	if next := newStamper("c", "n", "b").seq.Load(); next < used {
		t.Errorf("after a restart %d, before %d", next, used)
	}
}

func TestSamplesAreSpreadOverTheFleet(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		d := spreadOf(fmt.Sprint("gn", i), 10*time.Second)
		if d < 0 || d > longestSpread {
			t.Errorf("spread %s", d)
		}
		seen[d] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d phases for 100 nodes", len(seen))
	}
	if d := spreadOf("gn1", 100*time.Millisecond); d > 20*time.Millisecond {
		t.Errorf("spread %s of a short window", d)
	}
}
