package dcgm

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// world is a scenario of the fake dcgmi.
type world map[string]any

// fake puts the repository's fake dcgmi in place, with a scenario that the test may change.
type fake struct {
	t    *testing.T
	path string
	log  string
}

func newFake(t *testing.T, w world) (*fake, *Tool) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	command, err := filepath.Abs("../../../tests/fakes/dcgmi/dcgmi")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &fake{t: t, path: filepath.Join(dir, "scenario"), log: filepath.Join(dir, "log")}
	f.set(w)
	t.Setenv("HEELER_FAKE_DCGMI", f.path)
	return f, &Tool{Command: []string{command}, Silence: 2 * time.Second}
}

func (f *fake) set(w world) {
	f.t.Helper()
	w["log"] = f.log
	data, err := json.Marshal(w)
	if err == nil {
		if err = os.WriteFile(f.path+".new", data, 0o600); err == nil {
			err = os.Rename(f.path+".new", f.path)
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// calls are the command lines of one subcommand.
func (f *fake) calls(command string) []string {
	data, _ := os.ReadFile(f.log)
	var some []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, command) {
			some = append(some, strings.TrimSpace(line))
		}
	}
	return some
}

// gpus are the GPUs of a node.
type gpus struct {
	mu     sync.Mutex
	lacks  []string
	atWork []string
	lent   []string
}

func (g *gpus) Unprofiled() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.lacks)
}

func (g *gpus) LendProfiling(uuids []string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, uuid := range uuids {
		if !slices.Contains(g.atWork, uuid) {
			g.lent = append(g.lent, uuid)
		}
	}
	return slices.Clone(g.lent)
}

func (g *gpus) ReturnProfiling(uuids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lent = slices.DeleteFunc(g.lent, func(uuid string) bool { return slices.Contains(uuids, uuid) })
}

func (g *gpus) now() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.lent)
}

// running is a source that runs.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	beats  chan struct{}
	got    chan heelerv1.Message
}

func run(t *testing.T, f func(context.Context, func(), func(heelerv1.Message) error) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t, cancel, make(chan error, 1), make(chan struct{}, 1000), make(chan heelerv1.Message, 1000)}
	go func() {
		r.done <- f(ctx, func() {
			select {
			case r.beats <- struct{}{}:
			default:
			}
		}, func(m heelerv1.Message) error {
			r.got <- m
			return nil
		})
	}()
	t.Cleanup(cancel)
	return r
}

const patience = 15 * time.Second

// ends waits for the end of Run.
func (r *running) ends() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.t.Fatal("Run does not end")
		return nil
	}
}

// stop ends it and tells how long that took.
func (r *running) stop() time.Duration {
	r.t.Helper()
	start := time.Now()
	r.cancel()
	if err := r.ends(); err != nil {
		r.t.Errorf("a source that is told to end says %v", err)
	}
	return time.Since(start)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func (s *Switches) run(ctx context.Context, beat func(), emit func(heelerv1.Message) error) error {
	return s.Run(ctx, beat, emit)
}
