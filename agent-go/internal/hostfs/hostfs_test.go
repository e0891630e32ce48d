package hostfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJobOfCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		text, job string
	}{
		"v1":                {"9:memory:/slurm/uid_1000/job_123/step_0/task_0\n8:cpuset:/slurm/uid_1000/job_123/step_0\n1:name=systemd:/system.slice/slurmd.service\n", "123"},
		"v1, named node":    {"4:devices:/slurm_gn001/uid_0/job_77/step_batch\n", "77"},
		"v2":                {"0::/system.slice/slurmstepd.scope/job_81234/step_0/user/task_0\n", "81234"},
		"v2, named node":    {"0::/system.slice/gn001_slurmstepd.scope/job_9/step_extern/user/task_special\n", "9"},
		"v2, container":     {"0::/../../slurmstepd.scope/job_5/step_0\n", "5"},
		"SLUID":             {"0::/system.slice/slurmstepd.scope/job_s6QXK1ZABCDE/step_0\n", "s6QXK1ZABCDE"},
		"none":              {"0::/user.slice/user-1000.slice/session-2.scope\n", ""},
		"root":              {"0::/\n", ""},
		"slurmd itself":     {"0::/system.slice/slurmd.service\n", ""},
		"a name like a job": {"0::/user.slice/job_5/x\n", ""},
		"inside a job":      {"0::/system.slice/slurmstepd.scope/job_5/step_0/user/slurm/job_6\n", "5"},
		"far behind slurm":  {"0::/slurm/other/job_6\n", ""},
		"rubbish":           {"::\n\n:::/slurm/job_\nx", ""},
	} {
		if job, ok := jobOfCgroup(c.text); job != c.job || ok != (c.job != "") {
			t.Errorf("%s: job %q, %v", name, job, ok)
		}
	}
}

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

func TestJobOf(t *testing.T) {
	root := t.TempDir()
	h := Host{Proc: root}
	put(t, root, "10/cgroup", "0::/system.slice/slurmstepd.scope/job_123/step_0\n")
	put(t, root, "10/environ", "SLURM_JOB_ID=999\x00")
	put(t, root, "11/cgroup", "0::/system.slice/slurmstepd.scope/job_sABC/step_0\n")
	put(t, root, "11/environ", "A=b\x00SLURM_JOB_ID=77\x00")
	put(t, root, "12/cgroup", "0::/system.slice/slurmstepd.scope/job_sABC/step_0\n")
	put(t, root, "13/cgroup", "0::/user.slice\n")
	put(t, root, "13/environ", "SLURM_JOB_ID=5\x00")
	for pid, want := range map[uint64]string{10: "123", 11: "77", 12: "", 13: "", 14: ""} {
		if job, ok := h.JobOf(pid); job != want || ok != (want != "") {
			t.Errorf("process %d: job %q, %v", pid, job, ok)
		}
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
