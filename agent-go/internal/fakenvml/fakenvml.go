//go:build cgo

// Package fakenvml gives tests the fake GPU library of this repository, and scenarios for it.
package fakenvml

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"heeler.dev/agent-go/internal/hostfs"
)

// Build returns the path of the library, which it builds. Without a C compiler the test is skipped; in CI it fails.
func Build(t testing.TB, options ...string) string {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where is this file?")
	}
	source := filepath.Join(filepath.Dir(here), "..", "..", "..", "tests", "fakes", "nvml")
	for _, tool := range []string{"make", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			miss(t, "no "+tool)
		}
	}
	if _, err := os.Stat(filepath.Join(source, "Makefile")); err != nil {
		miss(t, "no fake library beside this module")
	}
	out := "build"
	if len(options) > 0 {
		out = t.TempDir()
	}
	command := exec.Command("make", append([]string{"-s", "-C", source, "OUT=" + out}, options...)...)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("the fake library does not build: %v\n%s", err, text)
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(source, out)
	}
	return filepath.Join(out, "libnvidia-ml.so.1")
}

func miss(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Scenario is the file that the library follows.
type Scenario struct {
	t    testing.TB
	path string
}

// Follow makes the library follow a new scenario, once it is opened the next time.
func Follow(t testing.TB, text string) *Scenario {
	t.Helper()
	s := &Scenario{t, filepath.Join(t.TempDir(), "scenario")}
	s.Set(text)
	t.Setenv("HEELER_FAKE_NVML", s.path)
	return s
}

// Set changes the scenario.
func (s *Scenario) Set(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path+".new", []byte(text+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		s.t.Fatal(err)
	}
}

// Holding makes the fake library keep a file open while it is in use, as the driver does, and tells whether it does.
func Holding(t testing.TB) func() bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia0")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HEELER_FAKE_NVML_HOLDS", path)
	return func() bool {
		names, err := hostfs.OpenFiles(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(names) > 0
	}
}
