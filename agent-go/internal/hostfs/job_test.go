package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const someSLUID = "s5K1KKYAYG5D00"

func TestTheJobStandsInTheCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
	}{
		"v1": {
			"9:memory:/slurm/uid_1000/job_123/step_0/task_0\n8:cpuset:/slurm/uid_1000/job_123/step_0\n" +
				"1:name=systemd:/system.slice/slurmd.service\n", "123",
		},
		"v1, the first line is of another":  {"5:devices:/system.slice/slurmd.service\n3:freezer:/slurm/uid_0/job_7/step_0\n", "7"},
		"v1, several slurmd":                {"4:devices:/slurm_gn001/uid_0/job_77/step_batch\n", "77"},
		"v1, another name at the top":       {"4:devices:/hpc/uid_0/job_77/step_batch\n", "77"},
		"v1, in a container":                {"4:memory:/docker/0123abcd/slurm/uid_0/job_77/step_batch/task_0\n", "77"},
		"hybrid":                            {"2:cpu:/slurm/uid_0/job_8/step_0/task_0\n0::/system.slice/slurmd.service\n", "8"},
		"v2":                                {"0::/system.slice/slurmstepd.scope/job_81234/step_0/user/task_0\n", "81234"},
		"v2, several slurmd":                {"0::/system.slice/gn001_slurmstepd.scope/job_9/step_extern/user/task_special\n", "9"},
		"v2, another slice":                 {"0::/hpc.slice/hpc-slurm.slice/slurmstepd.scope/job_9/step_0/user/task_0\n", "9"},
		"v2, slurmd in a container":         {"0::/kubepods.slice/cri-containerd-12.scope/system.slice/slurmstepd.scope/job_9/step_0\n", "9"},
		"v2, seen from a cgroup namespace":  {"0::/../../slurmstepd.scope/job_5/step_0\n", "5"},
		"v2, adopted":                       {"0::/system.slice/slurmstepd.scope/job_5/step_extern/user/task_special\n", "5"},
		"v2, podman in the job":             {"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/libpod-0123\n", "5"},
		"v2, docker names like slurm's":     {"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/slurm/job_6\n", "5"},
		"v2, Slurm in a job of Slurm":       {"0::/system.slice/slurmstepd.scope/job_5/step_0/user/slurmstepd.scope/job_6/x\n", "5"},
		"v2, the group is gone":             {"0::/system.slice/slurmstepd.scope/job_5 (deleted)\n", "5"},
		"v2, SLUID":                         {"0::/system.slice/slurmstepd.scope/" + someSLUID + "/step_0/user/task_0\n", someSLUID},
		"v2, SLUID, several slurmd":         {"0::/system.slice/gn001_slurmstepd.scope/" + someSLUID + "/step_batch/slurm\n", someSLUID},
		"the last job that there can be":    {"0::/slurmstepd.scope/job_4294967295/x\n", "4294967295"},
		"no more a job number":              {"0::/slurmstepd.scope/job_4294967296/x\n", ""},
		"a sign":                            {"0::/slurmstepd.scope/job_+5/x\n", ""},
		"a leading zero":                    {"0::/slurmstepd.scope/job_05/x\n", ""},
		"no number":                         {"0::/slurmstepd.scope/job_/x\n", ""},
		"almost a SLUID":                    {"0::/slurmstepd.scope/s5K1KKYAYG5D0/step_0\n0::/slurmstepd.scope/s5K1KKYAYG5DO0/step_0\n", ""},
		"slurmstepd's waiting room":         {"0::/system.slice/slurmstepd.scope/system\n", ""},
		"a login":                           {"0::/user.slice/user-1000.slice/session-2.scope\n", ""},
		"a user's forgery in the user unit": {"0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_5/x\n", ""},
		"a forgery of version 1":            {"1:name=systemd:/user.slice/user-1.slice/user@1.service/slurm/uid_0/job_5\n", ""},
		"the root":                          {"0::/\n", ""},
		"slurmd itself":                     {"0::/system.slice/slurmd.service\n", ""},
		"a name like a job's":               {"0::/machine.slice/job_5/x\n", ""},
		"far behind slurm":                  {"0::/slurm/other/job_6\n", ""},
		"rubbish":                           {"::\n\n:::/slurm/job_\nx", ""},
	} {
		p, ok := placeOf([]byte(c.text))
		if got := p.job + p.sluid; got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, ok, c.want)
		}
	}
}

func TestTitles(t *testing.T) {
	for title, want := range map[string]string{
		"slurmstepd: [3385.0]\x00": "3385", "slurmstepd: [123.batch]": "123", "slurmstepd: [9.extern]\x00\x00": "9",
		"slurmstepd: [40555]": "40555", "slurmstepd: [7.interactive]": "7", "slurmstepd: [5+1.0]": "", "slurmstepd: [x.0]": "",
		"slurmstepd: [12": "", "/usr/sbin/slurmstepd\x00infinity\x00": "", "bash\x00": "", "": "",
	} {
		if job, ok := jobOfTitle([]byte(title)); job != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", title, job, ok)
		}
	}
}

// node is a /proc and a /sys made by hand.
type node struct {
	t    *testing.T
	jobs *Jobs
	time time.Time
}

func newNode(t *testing.T) *node {
	n := &node{t: t, time: time.Unix(1000, 0)}
	n.jobs = NewJobs(Host{Proc: t.TempDir(), Sys: t.TempDir()})
	n.jobs.now = func() time.Time { return n.time }
	return n
}

func (n *node) process(pid int, cgroup, comm, cmdline string) {
	for name, text := range map[string]string{"cgroup": "0::" + cgroup + "\n", "comm": comm + "\n", "cmdline": cmdline} {
		put(n.t, n.jobs.host.Proc, fmt.Sprintf("%d/%s", pid, name), text)
	}
}

const scope = "/system.slice/slurmstepd.scope/"

func (n *node) want(pid uint64, want string) {
	n.t.Helper()
	if job, ok := n.jobs.Of(pid); job != want || ok != (want != "") {
		n.t.Errorf("process %d: job %q, %v, want %q", pid, job, ok, want)
	}
}

func TestProcessesAndTheirJobs(t *testing.T) {
	n := newNode(t)
	n.process(10, scope+"job_123/step_0/user/task_0", "python", "python\x00")
	n.process(11, "/system.slice/sshd.service", "sshd", "sshd\x00")
	put(t, n.jobs.host.Proc, "11/environ", "SLURM_JOB_ID=5\x00")
	n.want(10, "123")
	n.want(11, "") // the environment is not asked
	n.want(12, "") // gone
	// A number that is used again means another process, and an adopted one changes its job while it runs.
	n.process(10, scope+"job_124/step_0/user/task_0", "python", "python\x00")
	n.process(11, scope+"job_125/step_extern/user/task_special", "sshd", "sshd\x00")
	n.want(10, "124")
	n.want(11, "125")
	if n.jobs.Unresolved() != 0 {
		t.Error("something is unresolved")
	}
}

func TestTheJobOfASLUIDIsToldByItsSlurmstepd(t *testing.T) {
	for _, visible := range []bool{true, false} {
		n := newNode(t)
		n.process(10, scope+someSLUID+"/step_0/user/task_0", "python", "python\x00")
		comm := "slurmstepd"
		if visible {
			comm = "not to be found by a search"
		}
		n.process(20, scope+someSLUID+"/step_0/slurm", comm, "slurmstepd: [3385.0]\x00")
		n.process(21, scope+"s5K1KKYAYG5D01/step_0/slurm", "slurmstepd", "slurmstepd: [3386.0]\x00")
		n.process(22, scope+someSLUID+"/step_0/user/task_0", "slurmstepd", "slurmstepd: [666.0]\x00") // a user's forgery
		n.process(19, scope+"system", "slurmstepd", "/usr/sbin/slurmstepd\x00infinity\x00")
		if visible {
			put(t, n.jobs.host.Sys, "fs/cgroup"+scope+someSLUID+"/step_0/slurm/cgroup.procs", "20\n")
		}
		n.want(10, "3385")
		n.want(22, "3385")
		// It stays known when slurmstepd is killed.
		if err := os.RemoveAll(filepath.Join(n.jobs.host.Proc, "20")); err != nil {
			t.Fatal(err)
		}
		n.want(10, "3385")
	}
}

func TestASLUIDWithoutASlurmstepdIsCountedAndAskedAgainLater(t *testing.T) {
	n := newNode(t)
	n.process(10, scope+someSLUID+"/step_0/user/task_0", "python", "python\x00")
	n.want(10, "")
	n.process(20, scope+someSLUID+"/step_0/slurm", "slurmstepd", "slurmstepd: [3385.0]\x00")
	n.want(10, "") // a search among all processes is not made each time
	if got := n.jobs.Unresolved(); got != 2 {
		t.Errorf("%d unresolved", got)
	}
	n.time = n.time.Add(firstRetry)
	n.want(10, "3385")
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	n := newNode(t)
	for i := range 2 * mostSluids {
		name := fmt.Sprintf("s%013d", i)
		n.jobs.ofSLUID(place{sluid: name, dir: "/none"})
	}
	if len(n.jobs.sluids) > mostSluids {
		t.Errorf("%d are remembered", len(n.jobs.sluids))
	}
	n.time = n.time.Add(2 * forgetAfter)
	n.jobs.ofSLUID(place{sluid: someSLUID, dir: "/none"})
	if len(n.jobs.sluids) != 1 {
		t.Errorf("%d old ones are remembered", len(n.jobs.sluids))
	}
}

func FuzzCgroup(f *testing.F) {
	for _, s := range []string{
		"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0\n", "4:memory:/slurm/uid_0/job_77/step_batch\n",
		"0::/system.slice/gn1_slurmstepd.scope/" + someSLUID + "/step_0/slurm\n", "0::/../../slurmstepd.scope/job_5 (deleted)\n",
		"::\n:::/slurm/job_\nx", "1:a:/x/uid_/job_1", "0::/user.slice/user@1.service/slurm/job_1\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, ok := placeOf(text)
		if !ok {
			if p != (place{}) {
				t.Errorf("half a result: %+v", p)
			}
			return
		}
		if (p.job == "") == (p.sluid == "") || p.job != "" && !isJobNumber([]byte(p.job)) {
			t.Errorf("%+v of %q", p, text)
		}
		if !strings.Contains(string(text), p.dir) || strings.Contains(p.dir, "\n") {
			t.Errorf("directory %q of %q", p.dir, text)
		}
	})
}

func FuzzTitle(f *testing.F) {
	for _, s := range []string{"slurmstepd: [3385.0]\x00", "slurmstepd: [40555]", "slurmstepd: [", "slurmstepd: [].0"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, title []byte) {
		if job, ok := jobOfTitle(title); ok && !isJobNumber([]byte(job)) {
			t.Errorf("job %q of %q", job, title)
		}
	})
}
