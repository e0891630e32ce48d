//go:build cgo

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/control"
	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/schemas/go/heelerv1"
)

func (s *site) ask(r control.Request) control.Answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	a, err := control.Ask(ctx, s.config.ControlSocket, r)
	if err != nil {
		s.t.Fatalf("%s: %v", r.Command, err)
	}
	return a
}

func hasState(collector string, state heelerv1.CollectorState, why string) func(*heelerv1.AgentStatus) bool {
	return func(m *heelerv1.AgentStatus) bool {
		c := m.Collectors[collector]
		return c.State == state && strings.Contains(c.Why, why)
	}
}

func anySample(m *heelerv1.GpuSample) bool { return m.Mean["power_w"] != nil }

func TestAReleaseIsToldAndEndsByCommandOrByTime(t *testing.T) {
	open := fakenvml.Holding(t)
	s := newSite(t)
	s.run()
	sample := wait(s, "a sample", anySample)
	if !open() {
		t.Fatal("a sample without a driver")
	}
	a := s.ask(control.Request{Command: CommandRelease, For: "10m"})
	who := fmt.Sprintf("UTC by pid %d uid %d", os.Getpid(), os.Getuid())
	if !a.OK || !strings.HasPrefix(a.Text, "GPUs released until ") || !strings.HasSuffix(a.Text, who) {
		t.Fatalf("%+v", a)
	}
	if open() {
		t.Error("the driver is still open")
	}
	s.forget()
	wait(s, "a status that says released", hasState("nvml", heelerv1.CollectorOff, "released until "))
	wait(s, "the monitors are off too", hasState("gpm", heelerv1.CollectorOff, "released until "))
	s.log("4,7,5,-;" + fmt.Sprintf(xid79, *sample.GPU.PCI[2]))
	event := wait(s, "an XID meanwhile", func(m *heelerv1.KernelEvent) bool { return m.Code != nil && *m.Code == 79 })
	if event.UUID != sample.GPU.UUID[2] || event.GpuState == heelerv1.GpuLost || open() {
		t.Errorf("open %v, event %+v", open(), event)
	}
	time.Sleep(2 * s.config.Window.Duration)
	s.forget()
	time.Sleep(2 * s.config.Window.Duration)
	s.mu.Lock()
	for _, m := range s.got {
		if m.Type() == "GpuSample" {
			t.Error("a sample of released GPUs")
		}
	}
	s.mu.Unlock()
	if a := s.ask(control.Request{Command: CommandResume}); !a.OK {
		t.Fatalf("%+v", a)
	}
	wait(s, "a sample again", anySample)
	if a := s.ask(control.Request{Command: CommandRelease, For: "1s"}); !a.OK || open() {
		t.Fatalf("%+v, open %v", a, open())
	}
	for begun := time.Now(); !open(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the driver stays closed after the time")
		}
	}
	s.forget()
	wait(s, "a sample after the time", anySample)
}

func TestAReleaseOutlivesARestartOfTheAgent(t *testing.T) {
	open := fakenvml.Holding(t)
	s := newSite(t)
	stop := s.run()
	wait(s, "a sample", anySample)
	if a := s.ask(control.Request{Command: CommandRelease, For: "10m"}); !a.OK {
		t.Fatalf("%+v", a)
	}
	stop()
	s.forget()
	s.run()
	wait(s, "a status that says released", hasState("nvml", heelerv1.CollectorOff, "released until "))
	if open() {
		t.Error("the driver is open")
	}
	s.ask(control.Request{Command: CommandResume})
	wait(s, "a sample", anySample)
}

func TestTheEndOfTheAgentLetsGoOfTheDriver(t *testing.T) {
	open := fakenvml.Holding(t)
	s := newSite(t)
	stop := s.run()
	wait(s, "a sample", anySample)
	stop()
	if open() {
		t.Error("the driver is still open")
	}
}

func TestAHangingGPUIsNamedAndNothingIsReleased(t *testing.T) {
	open := fakenvml.Holding(t)
	s := newSite(t)
	s.closeAfterwards()
	s.run()
	sample := wait(s, "a sample", anySample)
	s.scenario.Set("all busy\n3 hang all")
	wait(s, "a hung GPU", func(m *heelerv1.GpuSample) bool { return *m.State[3] == heelerv1.GpuHung })
	a := s.ask(control.Request{Command: CommandRelease, For: "10m"})
	if a.OK || !strings.Contains(a.Text, sample.GPU.UUID[3]) || !open() {
		t.Errorf("open %v, %+v", open(), a)
	}
	s.forget()
	wait(s, "the others are read on", func(m *heelerv1.GpuSample) bool { return *m.State[4] == heelerv1.GpuOK })
}

func TestProfilingPausesForATimeAndForAJob(t *testing.T) {
	s := newSite(t)
	s.config.Proc = filepath.Join(t.TempDir(), "proc")
	process := filepath.Join(s.config.Proc, "4242")
	for path, text := range map[string]string{
		filepath.Join(process, "cgroup"):                          "0::/system.slice/slurmstepd.scope/job_81234/step_0/user/task_0\n",
		filepath.Join(s.config.Proc, "sys/kernel/random/boot_id"): "b\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.run()
	profiled := func(m *heelerv1.GpuSample) bool { return m.Mean["sm_active_ratio"] != nil }
	paused := func(m *heelerv1.GpuSample) bool { return m.Absent["sm_active_ratio"] == "paused" }
	wait(s, "a profile", profiled)
	if a := s.ask(control.Request{Command: CommandPauseGPM, Job: "81234"}); !a.OK {
		t.Fatalf("%+v", a)
	}
	if a := s.ask(control.Request{Command: CommandPauseGPM, For: "1s"}); !a.OK {
		t.Fatalf("%+v", a)
	}
	wait(s, "a sample without a profile", paused)
	s.forget()
	wait(s, "a status that says why", hasState("gpm", heelerv1.CollectorOff, "paused until job 81234 ends by pid"))
	time.Sleep(2 * beat) // the time is over
	s.forget()
	wait(s, "the job goes on, and so does the pause", paused)
	if err := os.RemoveAll(process); err != nil {
		t.Fatal(err)
	}
	wait(s, "a profile after the job", profiled)
}

func TestHoldsEnd(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	gone := func(string, uint64) (uint64, bool) { return 0, false }
	here := func(string, uint64) (uint64, bool) { return 7, true }
	h := &hold{Since: start, Until: at(time.Minute)}
	if h.over(at(59*time.Second), nil) || !h.over(at(time.Minute), nil) {
		t.Error("a time does not end when it is over")
	}
	h = &hold{Since: start, Job: "5"}
	if h.over(at(jobAppears), gone) {
		t.Error("a job that is still to come was given up")
	}
	if h.over(at(jobAppears), here) || !h.over(at(jobAppears+time.Second), gone) {
		t.Error("a job that came and went")
	}
	if h := (&hold{Since: start, Job: "5"}); !h.over(at(jobAppears+time.Second), gone) {
		t.Error("a job that never came")
	}
	if h := (&hold{Since: start, Job: "5", Until: at(time.Hour)}); h.over(at(jobAppears+time.Second), gone) ||
		!h.over(at(time.Hour), here) {
		t.Error("a job with a time")
	}
}

func TestUselessRequestsAreRefused(t *testing.T) {
	s := newSite(t)
	s.run()
	wait(s, "a status", func(*heelerv1.AgentStatus) bool { return true })
	for _, r := range []control.Request{
		{}, {Command: "format"}, {Command: CommandRelease}, {Command: CommandRelease, For: "-5m"},
		{Command: CommandRelease, For: "25h"}, {Command: CommandRelease, For: "10"}, {Command: CommandPauseGPM},
		{Command: CommandPauseGPM, Job: "../1"}, {Command: CommandPauseGPM, Job: "0"}, {Command: CommandReload},
	} {
		if a := s.ask(r); a.OK || a.Text == "" {
			t.Errorf("%+v: %+v", r, a)
		}
	}
	a := s.ask(control.Request{Command: CommandStatus})
	var m struct{ Node string }
	if err := json.Unmarshal(a.Status, &m); err != nil || m.Node != s.config.Node || !strings.Contains(a.Text, "bus connected") {
		t.Errorf("%+v, %v", a, err)
	}
}
