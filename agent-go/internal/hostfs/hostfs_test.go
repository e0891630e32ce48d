package hostfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, root, path, text string) {
	t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHost(t *testing.T) {
	root := t.TempDir()
	h := Host{Proc: root}
	if _, err := h.BootID(); err == nil {
		t.Error("a boot id from nowhere")
	}
	if h.PIDMax() != defaultPIDMax || h.KernelRelease() != "" {
		t.Error("values from nowhere")
	}
	put(t, root, "sys/kernel/random/boot_id", "6f1c2f0e-5a61-4d0b-9a53-0a6b5a0f3c11\n")
	put(t, root, "sys/kernel/pid_max", "32768\n")
	put(t, root, "sys/kernel/osrelease", "6.1.0-18-amd64\n")
	if id, err := h.BootID(); err != nil || !strings.HasPrefix(id, "6f1c2f0e") {
		t.Errorf("boot id %q, %v", id, err)
	}
	if h.PIDMax() != 32768 || h.KernelRelease() != "6.1.0-18-amd64" {
		t.Error("values not read")
	}
}

func TestSelf(t *testing.T) {
	if cpu, err := CPUTime(); err != nil || cpu < 0 {
		t.Errorf("CPU time %v, %v", cpu, err)
	}
	if rss, err := RSS(); err != nil || rss == 0 {
		t.Errorf("memory %d, %v", rss, err)
	}
	boot, err := SinceBoot()
	if err != nil || boot <= 0 {
		t.Errorf("since boot %v, %v", boot, err)
	}
}

func TestDescriptorsAreCounted(t *testing.T) {
	before, err := Descriptors()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f, err := os.Open("/proc/self/stat")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
	}
	if after, err := Descriptors(); err != nil || after != before+3 {
		t.Errorf("%d open files, before %d: %v", after, before, err)
	}
}
