package hostfs

import (
	"os"
	"strconv"
)

// Runs finds a process of a job and false when none runs here. hint is one that was found before, which saves the
// search through all processes while it lives.
func (j *Jobs) Runs(job string, hint uint64) (uint64, bool) {
	if hint != 0 && j.belongs(hint, job) {
		return hint, true
	}
	dir, err := os.Open(j.host.Proc)
	if err != nil {
		return 0, false
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(longestSearch)
	for _, name := range names {
		pid, err := strconv.ParseUint(name, 10, jobBits)
		if err == nil && j.belongs(pid, job) {
			return pid, true
		}
	}
	return 0, false
}

func (j *Jobs) belongs(pid uint64, job string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, ok := j.host.place(strconv.FormatUint(pid, 10), &j.reader)
	switch {
	case !ok:
		return false
	case p.job != "":
		return p.job == job
	default:
		return j.ofSLUID(p) == job
	}
}
