package hostfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// JobOf is the Slurm job that a process belongs to, by its cgroup, and false when it belongs to none or is gone.
// A cgroup tells the truth: a process cannot leave its job's, whereas it can write what it likes into its environment.
func (h Host) JobOf(pid uint64) (string, bool) {
	dir := filepath.Join(h.Proc, strconv.FormatUint(pid, 10))
	data, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return "", false
	}
	job, ok := jobOfCgroup(string(data))
	if !ok {
		return "", false
	}
	if isNumber(job) {
		return job, true
	}
	// Newer Slurm may name the cgroup by the job's SLUID. Only there is the environment asked for the number.
	environ, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return "", false
	}
	return jobOfEnviron(environ)
}

// jobOfCgroup finds the job in the text of /proc/PID/cgroup: the part after "job_" of the first path component that
// follows Slurm's own, which is slurm or slurm_NODE (version 1) or slurmstepd.scope or NODE_slurmstepd.scope
// (version 2). A job's own sub-groups come later in the path and cannot pass for it.
func jobOfCgroup(text string) (string, bool) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		slurm := false
		for part := range strings.SplitSeq(fields[2], "/") {
			if slurm {
				if job, ok := strings.CutPrefix(part, "job_"); ok && job != "" {
					return job, true
				}
				if !strings.HasPrefix(part, "uid_") {
					slurm = false
				}
			}
			slurm = slurm || ofSlurm(part)
		}
	}
	return "", false
}

func ofSlurm(part string) bool {
	return part == "slurm" || strings.HasPrefix(part, "slurm_") ||
		part == "slurmstepd.scope" || strings.HasSuffix(part, "_slurmstepd.scope")
}

func jobOfEnviron(environ []byte) (string, bool) {
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if job, ok := bytes.CutPrefix(variable, []byte("SLURM_JOB_ID=")); ok && isNumber(string(job)) {
			return string(job), true
		}
	}
	return "", false
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}
