//go:build cgo

package agent

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/config"
	"heeler.dev/agent-go/internal/control"
	"heeler.dev/agent-go/internal/fakenvml"
	"heeler.dev/schemas/go/heelerv1"
)

// older makes the site's GPUs such as have no performance monitor for NVML, with DCGM beside them. It numbers them
// backwards.
func older(t *testing.T, s *site) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	s.config.NVML.Library = fakenvml.Build(t, "HIDE=nvmlGpmQueryDeviceSupport")
	command, err := filepath.Abs("../../../tests/fakes/dcgmi/dcgmi")
	if err != nil {
		t.Fatal(err)
	}
	s.config.DCGM.Enabled, s.config.DCGM.Command = true, []string{command}
	s.config.DCGM.Interval = config.Duration{Duration: 100 * time.Millisecond}
	s.config.DCGM.SwitchInterval = config.Duration{Duration: 300 * time.Millisecond}
	t.Setenv("HEELER_FAKE_DCGMI", filepath.Join(t.TempDir(), "scenario"))
}

func dcgmSays(t *testing.T, scenario map[string]any) {
	t.Helper()
	data, err := json.Marshal(scenario)
	path := os.Getenv("HEELER_FAKE_DCGMI")
	if err == nil {
		if err = os.WriteFile(path+".new", data, 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// busy is DCGM's view of eight GPUs, whose activity tells them apart.
func busy(uuids []string) map[string]any {
	gpus, values := []any{}, map[string]any{"Switch 4": map[string]any{"858": 41}}
	for i, uuid := range uuids {
		id := len(uuids) - 1 - i
		gpus = append(gpus, map[string]any{"id": id, "uuid": uuid})
		values["GPU "+string(rune('0'+id))] = map[string]any{"1002": float64(i) / 8, "1006": 0.5}
	}
	return map[string]any{"gpus": gpus, "values": values, "switches": []int{4}}
}

func profiled(m *heelerv1.GpuSample) bool {
	column := m.Mean["sm_active_ratio"]
	if column == nil {
		return false
	}
	for i, v := range column {
		if f, ok := v.Float(); !ok || f != float64(i)/8 {
			return false
		}
	}
	return true
}

func TestOlderGPUsAreProfiledThroughDCGM(t *testing.T) {
	s := newSite(t)
	older(t, s)
	dcgmSays(t, map[string]any{"down": true})
	stop := s.run()
	sample := wait(s, "a sample without profiling", func(m *heelerv1.GpuSample) bool {
		return len(m.GPU.UUID) == 8 && m.Mean["power_w"] != nil && m.Absent["sm_active_ratio"] != ""
	})
	wait(s, "a status that DCGM fails", hasState("dcgm", heelerv1.CollectorFailing, "unable to establish a connection"))
	dcgmSays(t, busy(sample.GPU.UUID))
	s.forget()
	got := wait(s, "a sample with DCGM's values at the right GPUs", profiled)
	if v, _ := got.Mean["fp64_active_ratio"][3].Float(); v != 0.5 || got.Absent["sm_active_ratio"] != "" {
		t.Errorf("fp64 %v, absent %v", got.Mean["fp64_active_ratio"], got.Absent)
	}
	wait(s, "a status that it works", hasState("dcgm", heelerv1.CollectorOK, ""))
	wait(s, "a sample of the switch", func(m *heelerv1.SwitchSample) bool {
		return len(m.Switches) == 1 && m.Switches[0].Switch == 4
	})
	if a := s.ask(control.Request{Command: CommandPauseGPM, For: "10m"}); !a.OK {
		t.Fatalf("%+v", a)
	}
	s.forget()
	wait(s, "a status that it is paused", hasState("dcgm", heelerv1.CollectorOff, "paused until"))
	wait(s, "switches meanwhile", func(m *heelerv1.SwitchSample) bool { return true })
	time.Sleep(2 * s.config.Window.Duration)
	s.forget()
	if m := wait(s, "a sample meanwhile", anySample); profiled(m) || m.Mean["fp64_active_ratio"] != nil {
		t.Errorf("profiled while it was paused: %v", m.Mean["sm_active_ratio"])
	}
	if a := s.ask(control.Request{Command: CommandResume}); !a.OK {
		t.Fatalf("%+v", a)
	}
	wait(s, "profiling again", profiled)
	if a := s.ask(control.Request{Command: CommandRelease, For: "10m"}); !a.OK {
		t.Fatalf("%+v", a)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("released, and these still run: %v", left)
	}
	if a := s.ask(control.Request{Command: CommandResume}); !a.OK {
		t.Fatalf("%+v", a)
	}
	s.forget()
	wait(s, "profiling after the release", profiled)
	start := time.Now()
	stop()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the end took %s", took)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("the agent has ended, and these still run: %v", left)
	}
}

// children are the fakes that run below this process.
func children(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		for _, pid := range strings.Fields(string(text)) {
			line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if strings.Contains(string(line), "dcgmi") {
				found = append(found, pid+" "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
	}
	return found
}

func TestDCGMIsOffByDefault(t *testing.T) {
	s := newSite(t)
	s.run()
	m := wait(s, "a status", func(m *heelerv1.AgentStatus) bool { return m.Collectors["nvml"].State == heelerv1.CollectorOK })
	for _, name := range []string{"dcgm", "nvswitch"} {
		if state := m.Collectors[name].State; state != heelerv1.CollectorOff {
			t.Errorf("%s is %s", name, state)
		}
	}
}
