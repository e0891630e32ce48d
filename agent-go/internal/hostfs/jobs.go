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

	"heeler.dev/agent-go/internal/collector"
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

	guard      collector.Guard
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
	longestAsk    = time.Second
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
	p, ok := j.host.place(strconv.FormatUint(pid, 10), &j.reader)
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

func (h Host) place(pid string, r *Reader) (place, bool) {
	text, err := r.Read(filepath.Join(h.Proc, pid, "cgroup"))
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
		// A guard, since the title of a process stands in its memory, which a hanging one can hold locked.
		known.job, _ = collector.Guarded(&j.guard, longestAsk, func() string { return (&stepds{host: j.host}).ask(p) })
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

// stepds asks the slurmstepds of the node.
type stepds struct {
	host   Host
	reader Reader
}

// ask looks for the job's slurmstepd where its cgroup is, and, if that cannot be seen, among all processes.
func (s *stepds) ask(p place) string {
	dir := filepath.Join(s.host.Sys, "fs/cgroup", p.dir)
	entries, _ := os.ReadDir(dir) // it may not be visible from here
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "step_") {
			continue
		}
		if job := s.inGroup(filepath.Join(dir, e.Name(), "slurm/cgroup.procs"), p.sluid); job != "" {
			return job
		}
	}
	return s.search(p.sluid)
}

func (s *stepds) inGroup(procs, sluid string) string {
	text, err := s.reader.Read(procs)
	if err != nil {
		return ""
	}
	for _, pid := range bytes.Fields(bytes.Clone(text)) {
		if job := s.ofStepd(string(pid), sluid); job != "" {
			return job
		}
	}
	return ""
}

// search goes through all processes. An agent in a container sees no cgroups but its own, though it sees these.
func (s *stepds) search(sluid string) string {
	dir, err := os.Open(s.host.Proc)
	if err != nil {
		return ""
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(longestSearch)
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		comm, err := s.reader.Line(filepath.Join(s.host.Proc, name, "comm"))
		if err != nil || string(comm) != stepdComm {
			continue
		}
		if job := s.ofStepd(name, sluid); job != "" {
			return job
		}
	}
	return ""
}

// ofStepd is what the title of a slurmstepd says, if it is the one of that job.
func (s *stepds) ofStepd(pid, sluid string) string {
	p, ok := s.host.place(pid, &s.reader)
	if !ok || !p.daemon || p.sluid != sluid {
		return ""
	}
	title, err := s.reader.Read(filepath.Join(s.host.Proc, pid, "cmdline"))
	if err != nil {
		return ""
	}
	job, _ := jobOfTitle(title)
	return job
}
