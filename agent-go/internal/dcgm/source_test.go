package dcgm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/collector"
	"heeler.dev/schemas/go/heelerv1"
)

const every = 100 * time.Millisecond

// a100s is a node whose DCGM numbers are not NVML's.
func a100s() world {
	return world{
		"gpus": []any{
			map[string]any{"id": 0, "uuid": "GPU-b"}, map[string]any{"id": 1, "uuid": "GPU-a"},
		},
		"values": world{
			"GPU 0": world{"1002": "0.250", "1009": 2147483634, "1012": 2147483631},
			"GPU 1": world{"1002": "0.750", "1005": "N/A"},
		},
	}
}

func node2() *gpus { return &gpus{lacks: []string{"GPU-a", "GPU-b"}} }

func (p *Profiler) run(ctx context.Context, beat func(), emit func(heelerv1.Message) error) error {
	return p.Run(ctx, beat, emit)
}

// start runs a profiler and waits for its first rows.
func start(t *testing.T, p *Profiler) *running {
	t.Helper()
	r := run(t, p.run)
	select {
	case <-r.beats:
	case err := <-r.done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(patience):
		t.Fatalf("no rows: %v", p.Counts())
	}
	return r
}

func TestValuesGoToTheGPUWithTheirUUID(t *testing.T) {
	f, tool := newFake(t, a100s())
	g := node2()
	p := NewProfiler(tool, g, nil, every)
	r := start(t, p)
	a, b := p.Window("GPU-a", nil), p.Window("GPU-b", nil)
	if a["sm_active_ratio"] != 0.75 || b["sm_active_ratio"] != 0.25 {
		t.Errorf("a %v, b %v", a, b)
	}
	if _, ok := a["dram_active_ratio"]; ok {
		t.Errorf("N/A became %v", a)
	}
	if _, ok := b["pcie_tx_bytes_per_s"]; ok || b["nvlink_rx_bytes_per_s"] != 2147483631 {
		t.Errorf("b %v", b)
	}
	if p.Window("GPU-c", nil) != nil {
		t.Error("a GPU that is not there has values")
	}
	if took := r.stop(); took > 2*time.Second {
		t.Errorf("the end took %s", took)
	}
	if g.now() != nil && len(g.now()) > 0 {
		t.Errorf("still lent: %v", g.now())
	}
	if p.Window("GPU-a", nil) != nil {
		t.Error("values outlive their source")
	}
	if calls := f.calls("dmon"); len(calls) != 1 || !strings.Contains(calls[0], "-i 0,1 -e 1001,1002,") {
		t.Errorf("called: %v", calls)
	}
}

func TestLinesComeAsTheyAreWrittenThoughDcgmiKeepsThemBack(t *testing.T) {
	_, tool := newFake(t, a100s()) // its blocks of 8 KiB on a pipe would hold more than twenty rounds
	p := NewProfiler(tool, node2(), nil, every)
	started := time.Now()
	r := start(t, p)
	if rows := p.Counts()["rows"]; rows > 30 || time.Since(started) > 5*time.Second {
		t.Errorf("%d rows at once after %s", rows, time.Since(started))
	}
	r.stop()
}

func TestMIGInstancesAndWholeGPUsOfOneNode(t *testing.T) {
	w := a100s()
	w["instances"] = []any{
		map[string]any{"id": 7, "gpu": 1, "gi": 1}, map[string]any{"id": 8, "gpu": 1, "gi": 2},
	}
	w["values"] = world{
		"GPU 0": world{"1002": "0.100"}, "GPU 1": world{"1002": "0.200"}, "GPU-I 7": world{"1002": "0.300"},
		"GPU-I 8": world{"1002": "0.400"},
	}
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), []int{1002}, every)
	start(t, p)
	one, two := int64(1), int64(2)
	eventually(t, "all rows of a round", func() bool { return p.Counts()["rows"] >= 8 })
	for _, want := range []struct {
		uuid string
		gi   *int64
		v    float64
	}{{"GPU-b", nil, 0.1}, {"GPU-a", nil, 0.2}, {"GPU-a", &one, 0.3}, {"GPU-a", &two, 0.4}} {
		if got := p.Window(want.uuid, want.gi)["sm_active_ratio"]; got < want.v-1e-9 || got > want.v+1e-9 {
			t.Errorf("%s %v: %v, not %v", want.uuid, want.gi, got, want.v)
		}
	}
}

func TestTheTableOfDCGM2(t *testing.T) {
	w := a100s()
	w["style"] = "old"
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), nil, every)
	start(t, p)
	eventually(t, "a value", func() bool { return p.Window("GPU-a", nil)["sm_active_ratio"] == 0.75 })
}

func TestHeadersComeAgainAndDamagedRowsAreCounted(t *testing.T) {
	w := a100s()
	w["noise"] = []string{"GPU 0      0.9", "GPU 1   zero", strings.Repeat("x", 100000), "something else"}
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), []int{1002, 1005}, 20*time.Millisecond)
	start(t, p)
	eventually(t, "rows after another header", func() bool { return p.Counts()["rows"] > 80 })
	if v := p.Window("GPU-b", nil)["sm_active_ratio"]; v != 0.25 {
		t.Errorf("got %v", v)
	}
	if n := p.Counts()["malformed"]; n < 40 {
		t.Errorf("%d damaged rows counted", n)
	}
}

func TestAHostEngineThatGoesAwayIsToldAndNothingOldIsServed(t *testing.T) {
	w := a100s()
	w["rounds"], w["then"] = 10, "gone"
	f, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), nil, every)
	r := start(t, p)
	err := r.ends()
	if err == nil || !strings.Contains(err.Error(), "unable to establish a connection") || refused(err) {
		t.Errorf("it ended with %v", err)
	}
	if v := p.Window("GPU-a", nil); v != nil {
		t.Errorf("old values are served: %v", v)
	}
	w["down"] = true
	f.set(w)
	for range 3 {
		if err := p.Run(t.Context(), func() { t.Error("a beat") }, nil); err == nil || !strings.Contains(err.Error(), "connection") {
			t.Errorf("got %v", err)
		}
	}
	back := a100s()
	back["gpus"] = []any{map[string]any{"id": 4, "uuid": "GPU-a"}, map[string]any{"id": 5, "uuid": "GPU-b"}}
	back["values"] = world{"GPU 4": world{"1002": "0.500"}}
	f.set(back)
	start(t, p) // it has numbered its GPUs anew
	if v := p.Window("GPU-a", nil)["sm_active_ratio"]; v != 0.5 {
		t.Errorf("got %v", v)
	}
}

func TestACrashIsToldWithItsSignal(t *testing.T) {
	w := a100s()
	w["rounds"], w["then"] = 3, "segv"
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), nil, every)
	if err := run(t, p.run).ends(); err == nil || !strings.Contains(err.Error(), "segmentation fault") {
		t.Errorf("it ended with %v", err)
	}
}

func TestHalfALineIsNoRow(t *testing.T) {
	w := a100s()
	w["rounds"], w["then"] = 1, "half"
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), []int{1002}, every)
	if err := run(t, p.run).ends(); err == nil {
		t.Error("its end is not told")
	}
	if n := p.Counts(); n["rows"] != 2 || n["malformed"] != 0 {
		t.Errorf("got %v", n)
	}
}

func TestAChildThatHangsIsEnded(t *testing.T) {
	w := a100s()
	w["rounds"], w["then"] = 2, "hang"
	_, tool := newFake(t, w)
	tool.Silence = 500 * time.Millisecond
	p := NewProfiler(tool, node2(), nil, every)
	err := run(t, p.run).ends()
	if !errors.Is(err, collector.ErrHung) {
		t.Errorf("it ended with %v", err)
	}
	if pid := tool.held(); pid != 0 {
		t.Errorf("process %d is still there", pid)
	}
}

func TestAChildThatIgnoresBeingAskedIsKilledInTime(t *testing.T) {
	w := a100s()
	w["rounds"], w["then"] = 1, "hang"
	_, tool := newFake(t, w)
	tool.Silence = time.Minute
	p := NewProfiler(tool, node2(), nil, every)
	r := run(t, p.run)
	eventually(t, "rows", func() bool { return p.Counts()["rows"] >= 2 })
	if took := r.stop(); took > 2*time.Second {
		t.Errorf("the end took %s", took)
	}
	if tool.held() != 0 {
		t.Error("it lives on")
	}
}

func TestAProcessThatCannotBeKilledIsLeftAndNoOtherStarted(t *testing.T) {
	_, tool := newFake(t, a100s())
	c, err := tool.start("dmon", "-i", "0", "-e", "1002", "-d", "100")
	if err != nil {
		t.Fatal(err)
	}
	pid := c.cmd.Process.Pid
	c.signal = func(int, syscall.Signal) error { return nil } // as a process in the kernel takes it
	began := time.Now()
	tool.end(c)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it was waited for, %s", took)
	}
	_, err = tool.start("discovery", "-l")
	if !errors.Is(err, collector.ErrHung) || !strings.Contains(err.Error(), strconv.Itoa(pid)) {
		t.Errorf("got %v", err)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	eventually(t, "its end", func() bool { return tool.held() == 0 })
	if _, err := tool.discover(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestWhatCountsAsRefused(t *testing.T) {
	for said, want := range map[string]bool{
		"Error setting watches. Result: The third-party Profiling module returned an unrecoverable error":       true,
		"Error setting watches. Result: -6: The requested function is not supported":                            true,
		"Error setting watches. Result: In use by another client":                                               true,
		"-33: This request is serviced by a module of DCGM that is not currently loaded; Error setting watches": true,
		"Error: Got invalid field ID. '1016'. See dcgm_fields.h for a list of valid field IDs.":                 true,
		"doing so requires the host engine to be running as root; Error setting watches.":                       true,
		"Error: unable to establish a connection to the specified host: localhost":                              false,
		"Error setting watches. Result: Host engine connection invalid/disconnected":                            false,
		"": false, "Segmentation fault": false,
	} {
		if got := refused(&Ended{How: "exit status 1", Said: said}); got != want {
			t.Errorf("%q: %v", said, got)
		}
	}
	if refused(collector.ErrHung) {
		t.Error("a silence counts as refused")
	}
}

func TestRefusedProfilingIsTriedWithFewerFieldsAndThenSlowly(t *testing.T) {
	w := a100s()
	w["refuse"] = "In use by another client"
	f, tool := newFake(t, w)
	g := node2()
	p := NewProfiler(tool, g, nil, every)
	err := run(t, p.run).ends()
	if err == nil || !strings.Contains(err.Error(), "In use by another client") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("it ended with %v", err)
	}
	if n := len(f.calls("dmon")); n != len(ladder) {
		t.Errorf("tried %d times", n)
	}
	if len(g.now()) != 0 {
		t.Error("the GPUs are not returned")
	}
	err = p.Run(t.Context(), func() {}, nil)
	if err == nil || !strings.Contains(err.Error(), "tried again at") || len(f.calls("dmon")) != len(ladder) {
		t.Errorf("then %v after %d calls", err, len(f.calls("dmon")))
	}
	delete(w, "refuse")
	f.set(w)
	p.later = time.Now()
	start(t, p).stop()
}

func TestProfilingThatIsTakenAwayInTheMiddleCountsAsRefused(t *testing.T) {
	w := a100s()
	w["rounds"] = 5
	w["then"] = "Error getting values information. Return -37: The third-party Profiling module returned an unrecoverable error"
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), nil, every)
	err := run(t, p.run).ends()
	if err == nil || !strings.Contains(err.Error(), "profiling is refused") {
		t.Errorf("it ended with %v", err)
	}
	if p.Window("GPU-a", nil) != nil {
		t.Error("old values are served")
	}
}

func TestAShorterListIsReadWhereTheWholeOneIsRefused(t *testing.T) {
	w := a100s()
	w["unknown_fields"] = []int{1016}
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), nil, every)
	start(t, p)
	eventually(t, "a value", func() bool { return p.Window("GPU-a", nil)["sm_active_ratio"] == 0.75 })
	if p.Counts()["refused"] != 1 {
		t.Errorf("got %v", p.Counts())
	}
}

func TestOfABurstAfterASilenceOnlyTheLastRowCounts(t *testing.T) {
	w := a100s()
	w["silent_after"], w["silent_s"], w["burst_until"] = 3, 1, 40
	_, tool := newFake(t, w)
	p := NewProfiler(tool, node2(), []int{1002}, every)
	r := start(t, p)
	eventually(t, "the silence", func() bool { return p.Window("GPU-a", nil) == nil })
	eventually(t, "the burst", func() bool { return p.Counts()["rows"] > 70 })
	if v := p.Window("GPU-a", nil)["sm_active_ratio"]; v != 0.75 {
		t.Errorf("got %v", v)
	}
	r.stop()
}

func TestOnlyGPUsWithoutAMonitorAtWorkAreProfiled(t *testing.T) {
	f, tool := newFake(t, a100s())
	g := &gpus{lacks: []string{"GPU-a", "GPU-b"}, atWork: []string{"GPU-a"}}
	p := NewProfiler(tool, g, nil, every)
	start(t, p)
	if calls := f.calls("dmon"); len(calls) != 1 || !strings.Contains(calls[0], "-i 0 ") {
		t.Errorf("called: %v", calls)
	}
	if !reflect.DeepEqual(g.now(), []string{"GPU-b"}) {
		t.Errorf("lent %v", g.now())
	}
}

func TestWithoutDcgmiOrWithoutNeedTheSourceIsAbsent(t *testing.T) {
	p := NewProfiler(&Tool{Command: []string{"/nowhere/dcgmi"}}, node2(), nil, every)
	if err := p.Run(t.Context(), func() {}, nil); !errors.Is(err, collector.ErrAbsent) || !strings.Contains(err.Error(), "dcgmi") {
		t.Errorf("got %v", err)
	}
	f, tool := newFake(t, a100s())
	p = NewProfiler(tool, &gpus{}, nil, every)
	if err := p.Run(t.Context(), func() {}, nil); !errors.Is(err, collector.ErrAbsent) || len(f.calls("")) != 0 {
		t.Errorf("got %v after %v", err, f.calls(""))
	}
}

func TestTheChildGetsNoSecretsAndTheHost(t *testing.T) {
	got := environment([]string{"A=1", "HEELER_NATS_PASSWORD=x", "NOTIFY_SOCKET=/x", "HEELER_FAKE_DCGMI=y"})
	if !reflect.DeepEqual(got, []string{"A=1", "HEELER_FAKE_DCGMI=y"}) {
		t.Errorf("got %v", got)
	}
	f, tool := newFake(t, a100s())
	tool.Host = "engine:5555"
	if _, err := tool.discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if calls := f.calls("discovery"); calls[0] != "discovery -l --host engine:5555" {
		t.Errorf("called: %v", calls)
	}
}

func TestStartsAndEndsLeaveNothingBehind(t *testing.T) {
	_, tool := newFake(t, a100s())
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	cycle := func() {
		p := NewProfiler(tool, node2(), []int{1002}, every)
		start(t, p).stop()
	}
	cycle()
	openFiles, goroutines := files(), runtime.NumGoroutine()
	for range 10 {
		cycle()
	}
	eventually(t, "as few files and goroutines as before", func() bool {
		return files() <= openFiles && runtime.NumGoroutine() <= goroutines
	})
}

func TestACommandMayHaveArgumentsOfItsOwn(t *testing.T) {
	_, tool := newFake(t, a100s())
	tool.Command = append([]string{"env", "-u", "LANG"}, tool.Command...)
	if n, err := tool.discover(t.Context()); err != nil || len(n.gpus) != 2 {
		t.Errorf("got %+v, %v", n, err)
	}
	tool.Command = []string{filepath.Join(t.TempDir(), "x")}
	if _, err := tool.discover(t.Context()); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("got %v", err)
	}
}

// holdAChild makes this test a process that holds a dcgmi, for the next one.
const holdAChild = "HEELER_TEST_HOLD_A_CHILD"

func TestTheChildDiesWithTheAgent(t *testing.T) {
	if os.Getenv(holdAChild) != "" {
		c, err := begin(strings.Fields(os.Getenv(holdAChild)))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("child", c.cmd.Process.Pid)
		select {}
	}
	agent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	agent.Env = append(os.Environ(), holdAChild+"=sleep 120")
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "child %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child is not there: %v", err)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	eventually(t, "the end of the child", func() bool {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		return err != nil || len(line) == 0 // gone, or nobody has buried it
	})
}
