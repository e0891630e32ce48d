package kmsg

import (
	"regexp"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

// What the kernel does to processes: kills for memory, tasks that hang, processors that are stuck.
var (
	oomKilled = regexp.MustCompile(`[Kk]illed process (\d{1,10})(?:, UID \d{1,10},)? \((.{0,64})\)(?:,| |$)`)
	oomChosen = regexp.MustCompile(`: Kill process (\d{1,10}) \((.{0,64})\) score \d+ or sacrifice child`)
	oomTask   = regexp.MustCompile(`^Task in (\S+) killed as a result of limit of (\S+)$`)
	oomPart   = regexp.MustCompile(`(?:^|,)(constraint|task_memcg|oom_memcg|global_oom|task|pid|uid)(?:=([^,]*))?`)
	oomBytes  = regexp.MustCompile(`\b(total-vm|anon-rss|file-rss|shmem-rss):(\d{1,15})kB`)
	oomUID    = regexp.MustCompile(`\bUID:? ?(\d{1,10})\b`)
	hungTask  = regexp.MustCompile(`^INFO: task (.{1,64}):(\d{1,10}) blocked( in I/O wait)? for more than (\d{1,6}) seconds`)
	softLock  = regexp.MustCompile(`^BUG: soft lockup - CPU#(\d{1,5}) stuck for (\d{1,6})s! \[(.{1,64}):(\d{1,10})\]`)
	hardLock  = regexp.MustCompile(`^(?:CPU ?\d{1,5}: )?Watchdog detected hard LOCKUP on cpu (\d{1,5})`)
	rcuStall  = regexp.MustCompile(`^(?:rcu: )?INFO: (rcu\w*) (self-detected|detected)(?: expedited)? stalls? on CPUs?`)
	rcuCPU    = regexp.MustCompile(`[{( ](\d{1,5})(?:-\S*)?[ }]`)
)

const (
	oomThread = "oom"
	kibibyte  = 1024
)

// parseOOMKill: the line comes just before the one that names the victim, and alone knows its cgroup.
func parseOOMKill(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindOom, Text: text, part: opens, thread: oomThread}
	for _, m := range oomPart.FindAllStringSubmatch(strings.TrimPrefix(text, "oom-kill:"), -1) {
		switch m[1] {
		case "pid":
			f.PID = number(m[2])
		case "task":
			f.Comm = m[2]
		case "uid":
			f.setNumber("uid", m[2])
		case "constraint":
			f.set("constraint", m[2])
		case "task_memcg":
			f.set("cgroup", m[2])
		case "oom_memcg":
			f.set("limit_cgroup", m[2])
		}
	}
	return f, f.PID != nil
}

// parseOOMTask is how kernels before 4.19 name the cgroup.
func parseOOMTask(text string) (Fact, bool) {
	m := oomTask.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindOom, Text: text, part: opens, thread: oomThread, weak: true}
	f.set("cgroup", m[1])
	f.set("limit_cgroup", m[2])
	return f, true
}

// parseOOM takes the line that names the victim. Kernels before 5.0 first say whom they chose, and then whom they
// killed, which may be a child of it.
func parseOOM(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindOom, Text: text, thread: oomThread, text: replaceText}
	if m := oomChosen.FindStringSubmatch(text); m != nil {
		f.part = either
		f.set("memory_cgroup", strings.HasPrefix(text, "Memory cgroup"))
		f.setNumber("chosen_pid", m[1])
		f.once = "chosen_pid"
		f.Comm = m[2]
		return f, true
	}
	m := oomKilled.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f.PID, f.Comm, f.part, f.closes = number(m[1]), m[2], either, true
	if !strings.HasPrefix(text, "Killed") {
		f.set("memory_cgroup", strings.HasPrefix(text, "Memory cgroup"))
	}
	for _, b := range oomBytes.FindAllStringSubmatch(text, -1) {
		if n := number(b[2]); n != nil {
			f.set(strings.ReplaceAll(b[1], "-", "_")+"_bytes", *n*kibibyte)
		}
	}
	if u := oomUID.FindStringSubmatch(text); u != nil {
		f.setNumber("uid", u[1])
	}
	return f, true
}

func parseHungTask(text string) (Fact, bool) {
	m := hungTask.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindHungTask, Comm: m[1], PID: number(m[2]), Text: text}
	f.setNumber("seconds", m[4])
	if m[3] != "" {
		f.set("io_wait", true)
	}
	return f, true
}

func parseLockup(text string) (Fact, bool) {
	rest := strings.TrimPrefix(strings.TrimPrefix(text, "NMI "), "watchdog: ")
	if m := softLock.FindStringSubmatch(rest); m != nil {
		f := Fact{Kind: heelerv1.KindSoftLockup, Comm: m[3], PID: number(m[4]), Text: text}
		f.set("lockup", "soft")
		f.setNumber("cpu", m[1])
		f.setNumber("seconds", m[2])
		f.set("hard", false)
		return f, true
	}
	if m := hardLock.FindStringSubmatch(rest); m != nil {
		f := Fact{Kind: heelerv1.KindSoftLockup, Text: text}
		f.set("lockup", "hard")
		f.setNumber("cpu", m[1])
		f.set("hard", true)
		return f, true
	}
	return Fact{}, false
}

// parseRCUStall: a processor has not come round for so long that the kernel's own bookkeeping stands still.
func parseRCUStall(text string) (Fact, bool) {
	m := rcuStall.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindSoftLockup, Text: text}
	f.set("lockup", "rcu_stall")
	f.set("hard", false)
	f.set("flavour", m[1])
	if c := rcuCPU.FindStringSubmatch(text[len(m[0]):]); c != nil {
		f.setNumber("cpu", c[1])
	}
	return f, true
}
