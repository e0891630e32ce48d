package hostfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Jobs finds the Slurm job of a process by its cgroup. The cgroup tells the truth: a process cannot leave its job's,
// whereas it can write what it likes into its environment, which is never asked. All that is read is readable by
// anyone (unless /proc is mounted with hidepid), so it needs no rights. It may be used by several goroutines.
//
// Nothing is remembered of a process: its cgroup is read each time, which costs no more than to find out whether the
// number still means the same process. What is remembered is the job of a SLUID, which never changes.
type Jobs struct {
	host Host
	now  func() time.Time

	mu     sync.Mutex
	reader Reader
	sluids map[string]sluid

	unresolved atomic.Uint64
}

// sluid is what is known of a job that is named by SLUID.
type sluid struct {
	job   string
	retry time.Time // when to look again, while the job is not known
	pause time.Duration
	used  time.Time
}

const (
	mostSluids    = 4096
	firstRetry    = 10 * time.Second
	longestRetry  = 10 * time.Minute
	forgetAfter   = time.Hour // of a job that no process was asked for
	stepdComm     = "slurmstepd"
	longestSearch = 1 << 16 // processes
)

// NewJobs returns a finder of jobs.
func NewJobs(h Host) *Jobs { return &Jobs{host: h, now: time.Now, sluids: map[string]sluid{}} }

// Of is the job of a process, and false when it belongs to none, is gone, or its job's number is not known.
func (j *Jobs) Of(pid uint64) (string, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, ok := j.place(strconv.FormatUint(pid, 10))
	if !ok {
		return "", false
	}
	if p.job != "" {
		return p.job, true
	}
	job := j.ofSLUID(p)
	if job == "" {
		j.unresolved.Add(1)
	}
	return job, job != ""
}

// Unresolved counts the processes that were in a job's cgroup while the number of the job could not be found out.
func (j *Jobs) Unresolved() uint64 { return j.unresolved.Load() }

func (j *Jobs) place(pid string) (place, bool) {
	text, err := j.reader.Read(filepath.Join(j.host.Proc, pid, "cgroup"))
	if err != nil {
		return place{}, false
	}
	return placeOf(text)
}

// ofSLUID finds the number of a job that is named by SLUID. The job's slurmstepd knows: its title says it, and no
// user's process can enter the group that it lives in.
func (j *Jobs) ofSLUID(p place) string {
	now := j.now()
	known, ok := j.sluids[p.sluid]
	if !ok {
		j.makeRoom(now)
		known.pause = firstRetry
	}
	known.used = now
	if known.job == "" && !now.Before(known.retry) {
		known.job = j.askStepd(p)
		known.retry = now.Add(known.pause)
		known.pause = min(2*known.pause, longestRetry)
	}
	j.sluids[p.sluid] = known
	return known.job
}

func (j *Jobs) makeRoom(now time.Time) {
	for name, s := range j.sluids {
		if now.Sub(s.used) > forgetAfter {
			delete(j.sluids, name)
		}
	}
	for name := range j.sluids {
		if len(j.sluids) < mostSluids {
			return
		}
		delete(j.sluids, name)
	}
}

// askStepd looks for the job's slurmstepd where its cgroup is, and, if that cannot be seen, among all processes.
func (j *Jobs) askStepd(p place) string {
	dir := filepath.Join(j.host.Sys, "fs/cgroup", p.dir)
	entries, _ := os.ReadDir(dir) // it may not be visible from here
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "step_") {
			continue
		}
		if job := j.inGroup(filepath.Join(dir, e.Name(), "slurm/cgroup.procs"), p.sluid); job != "" {
			return job
		}
	}
	return j.search(p.sluid)
}

func (j *Jobs) inGroup(procs, sluid string) string {
	text, err := j.reader.Read(procs)
	if err != nil {
		return ""
	}
	for _, pid := range bytes.Fields(bytes.Clone(text)) {
		if job := j.ofStepd(string(pid), sluid); job != "" {
			return job
		}
	}
	return ""
}

// search goes through all processes. An agent in a container sees no cgroups but its own, though it sees these.
func (j *Jobs) search(sluid string) string {
	dir, err := os.Open(j.host.Proc)
	if err != nil {
		return ""
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(longestSearch)
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		comm, err := j.reader.Line(filepath.Join(j.host.Proc, name, "comm"))
		if err != nil || string(comm) != stepdComm {
			continue
		}
		if job := j.ofStepd(name, sluid); job != "" {
			return job
		}
	}
	return ""
}

// ofStepd is what the title of a slurmstepd says, if it is the one of that job.
func (j *Jobs) ofStepd(pid, sluid string) string {
	p, ok := j.place(pid)
	if !ok || !p.daemon || p.sluid != sluid {
		return ""
	}
	title, err := j.reader.Read(filepath.Join(j.host.Proc, pid, "cmdline"))
	if err != nil {
		return ""
	}
	job, _ := jobOfTitle(title)
	return job
}
