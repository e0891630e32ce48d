package hostfs

import (
	"bytes"
	"strconv"
)

// place is where a process stands in Slurm's cgroups.
type place struct {
	// job is the number in the name of the cgroup, or empty where it is named by SLUID.
	job string
	// sluid is Slurm's sortable id of the job, which names the cgroup since 26.05 (unless CgroupJobIdPaths=yes).
	sluid string
	// dir is the job's cgroup, from the root of the hierarchy.
	dir string
	// daemon says that this is a slurmstepd: it alone lives in the step's own group "slurm".
	daemon bool
}

// placeOf finds the job in the text of /proc/PID/cgroup, of which each line is a hierarchy (version 1, 2 or both):
//
//	4:memory:/slurm/uid_1000/job_123/step_0/task_0                       version 1; slurm_NODE with several slurmd
//	0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0         version 2; NODE_slurmstepd.scope likewise
//	0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0  by SLUID
//
// Whatever stands above Slurm's own group does not matter: another slice, a container that slurmd runs in, or /../..
// when the reader is in a cgroup namespace. What stands below the job cannot pass for another job, since the first one
// counts. A user's own systemd can make groups of any name below user@UID.service, so nothing there is believed.
func placeOf(text []byte) (place, bool) {
	for line := range bytes.Lines(text) {
		_, rest, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(":"))
		if !ok {
			continue
		}
		if _, path, ok := bytes.Cut(rest, []byte(":")); ok {
			if p, ok := placeOfPath(path); ok {
				return p, true
			}
		}
	}
	return place{}, false
}

func placeOfPath(path []byte) (place, bool) {
	for start, depth := 0, 0; start < len(path); {
		part, next := component(path, start)
		if ofUser(part) {
			return place{}, false
		}
		// CgroupPrepend can give version 1 another name at the top, but always followed by the user's group.
		if ofSlurm(part) || depth == 0 && bytes.HasPrefix(following(path, next), []byte("uid_")) {
			if p, ok := jobAt(path, next); ok {
				return p, true
			}
		}
		if len(part) > 0 {
			depth++
		}
		start = next
	}
	return place{}, false
}

// component is the part of a path that begins at start, and where the next one begins.
func component(path []byte, start int) ([]byte, int) {
	if n := bytes.IndexByte(path[start:], '/'); n >= 0 {
		return path[start : start+n], start + n + 1
	}
	return path[start:], len(path)
}

func following(path []byte, start int) []byte {
	part, _ := component(path, min(start, len(path)))
	return part
}

// jobAt reads the job's group, which follows Slurm's at start, in version 1 with the user's between them.
func jobAt(path []byte, start int) (place, bool) {
	part, next := component(path, start)
	if bytes.HasPrefix(part, []byte("uid_")) {
		start = next
		part, next = component(path, start)
	}
	end := start + len(part)
	part = bytes.TrimSuffix(part, []byte(" (deleted)"))
	name, named := bytes.CutPrefix(part, []byte("job_"))
	p := place{dir: string(path[:end]), daemon: inDaemonGroup(path[next:])}
	switch {
	case named && isJobNumber(name):
		p.job = string(name)
	case isSLUID(name):
		p.sluid = string(name)
	default:
		return place{}, false
	}
	return p, true
}

// inDaemonGroup tells whether what follows the job's group is step_X/slurm, where version 2 keeps slurmstepd apart.
func inDaemonGroup(rest []byte) bool {
	step, group, ok := bytes.Cut(bytes.TrimSuffix(rest, []byte(" (deleted)")), []byte("/"))
	return ok && bytes.HasPrefix(step, []byte("step_")) && string(group) == "slurm"
}

func ofSlurm(part []byte) bool {
	return string(part) == "slurm" || bytes.HasPrefix(part, []byte("slurm_")) ||
		string(part) == "slurmstepd.scope" || bytes.HasSuffix(part, []byte("_slurmstepd.scope"))
}

// ofUser tells whether what is below was made by a user's own service manager.
func ofUser(part []byte) bool {
	return string(part) == "user.slice" ||
		bytes.HasPrefix(part, []byte("user@")) && bytes.HasSuffix(part, []byte(".service"))
}

const (
	jobBits     = 32
	sluidLength = 14 // "s" and thirteen digits of Crockford's base 32
)

func isJobNumber(s []byte) bool {
	if len(s) == 0 || s[0] < '1' || s[0] > '9' {
		return false
	}
	_, err := strconv.ParseUint(string(s), 10, jobBits)
	return err == nil
}

func isSLUID(s []byte) bool {
	if len(s) != sluidLength || s[0] != 's' {
		return false
	}
	for _, c := range s[1:] {
		digit := c >= '0' && c <= '9'
		letter := c >= 'A' && c <= 'Z' && c != 'I' && c != 'L' && c != 'O' && c != 'U'
		if !digit && !letter {
			return false
		}
	}
	return true
}

// jobOfTitle reads the job from the name that a slurmstepd gives itself: "slurmstepd: [123.batch]", and in old versions
// "slurmstepd: [123]".
func jobOfTitle(title []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(title, []byte("slurmstepd: ["))
	if !ok {
		return "", false
	}
	inside, _, ok := bytes.Cut(rest, []byte("]"))
	if !ok {
		return "", false
	}
	job, _, _ := bytes.Cut(inside, []byte("."))
	if !isJobNumber(job) {
		return "", false
	}
	return string(job), true
}
