package kmsg

import (
	"regexp"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

var (
	sxidLine = regexp.MustCompile(`^nvidia-nvswitch(\d{1,3}): SXid \((?:PCI:)?([0-9a-fA-F:.]{7,20})\): (\d{4,6}), (.*)$`)
	sxidHead = regexp.MustCompile(`^(Fatal|Non-fatal)(?:, Link (\d{1,3}))? ?(.*)$`)
	sxidMore = regexp.MustCompile(`^(Severity|Engine|Data|Sub-engine)\b`)
	sxidUnit = regexp.MustCompile(`Severity (\d{1,5}) Engine instance (\d{1,5}) Sub-engine instance (\d{1,5})`)

	aerRoot   = regexp.MustCompile(`^(?:\S+ )?(\S+): AER: (?:(Multiple) )?(Corrected|Correctable|Uncorrected|Uncorrectable)(?: \(([A-Za-z-]+)\))? error (?:message )?received: (?:id=)?(\S+)`)
	aerBus    = regexp.MustCompile(`^(?:\S+ )?(\S+): (?:AER: )?PCIe Bus Error: severity=([A-Za-z]+)(?: \(([A-Za-z-]+)\))?, type=([^,]+), (?:\(([^)]*)\)|id=\S+)`)
	hotplug   = regexp.MustCompile(`^(?:\S+ )?(\S+): pciehp: Slot\(([^)]*)\): (Link Down|Link Up|Card not present|Card present|Surprise.*)`)
	mceLine   = regexp.MustCompile(`^mce: \[Hardware Error\]: CPU (\d{1,5}): Machine Check(?: Exception)?: (\S+) Bank (\d{1,3}): ([0-9a-fA-F]{1,16})`)
	edacLine  = regexp.MustCompile(`^EDAC (\S+): (\d{1,10}) (CE|UE) (.*)$`)
	oomKilled = regexp.MustCompile(`[Kk]illed process (\d{1,10}) \((.*?)\)(?:,| total-vm| |$)`)
	oomMemcg  = regexp.MustCompile(`(?:^|,)(constraint|task_memcg|oom_memcg|task|pid)=([^,]*)`)
	hungTask  = regexp.MustCompile(`^INFO: task (.{1,64}):(\d{1,10}) blocked for more than (\d{1,6}) seconds`)
	softLock  = regexp.MustCompile(`^watchdog: BUG: soft lockup - CPU#(\d{1,5}) stuck for (\d{1,6})s! \[(.{1,64}):(\d{1,10})\]`)
	hardLock  = regexp.MustCompile(`^watchdog: Watchdog detected hard LOCKUP on cpu (\d{1,5})`)
	nvmeLine  = regexp.MustCompile(`^nvme (nvme\d{1,4}): (.*(?:timeout|controller is down|Removing after probe|Abort status|I/O error|reset controller|Device not ready|frozen state).*)$`)
	blockLine = regexp.MustCompile(`^(?:blk_update_request: )?(?:critical (\w+) error|I/O error), dev (nvme\w+), sector (\d{1,20})`)
	nvmeBlock = regexp.MustCompile(`^(nvme\d{1,4}[nc]\w+): (.*(?:error|Error).*)$`)
	ext4      = regexp.MustCompile(`^EXT4-fs \(([^)]+)\): Remounting filesystem read-only`)
	xfs       = regexp.MustCompile(`^XFS \(([^)]+)\): .*(?:Shutting down filesystem|Filesystem has been shut down|shutdown)`)
	btrfs     = regexp.MustCompile(`^BTRFS\S* .*\(device ([^)]+?)(?: state \w+)?\): forced readonly`)
	mlx5Line  = regexp.MustCompile(`^mlx5_core ([0-9a-fA-F:.]{7,20})(?: (\S+))?: (.*)$`)
	mlx5Port  = regexp.MustCompile(`Port module event(?:\[error\])?: module (\d{1,3}), (.*)$`)
	mlx5Words = regexp.MustCompile(`Port module event|health|assert|synd|cmd_out_err|ACCESS_REG|insufficient power|High Temperature|FW fatal|fatal error|poll failed|failed`)
	linkLine  = regexp.MustCompile(`^(?:\S+ ([0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{5,10}):? )?([\w.@-]{1,32}): (?:NIC |NIC Copper )?[Ll]ink (?:is )?([Uu]p|[Dd]own)\b(.*)$`)
)

func parseSXid(text string) (Fact, bool) {
	m := sxidLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindSxid, Code: number(m[3]), Text: m[4], part: opens}
	if f.Code == nil || !f.address(m[2]) {
		return Fact{}, false
	}
	f.setNumber("switch", m[1])
	if sxidMore.MatchString(m[4]) {
		f.part = continues
		f.sxidMore()
		return f, true
	}
	if h := sxidHead.FindStringSubmatch(m[4]); h != nil {
		f.set("fatal", h[1] == "Fatal")
		f.setNumber("link", h[2])
	}
	return f, true
}

func (f *Fact) sxidMore() {
	if m := sxidUnit.FindStringSubmatch(f.Text); m != nil {
		f.setNumber("severity", m[1])
		f.setNumber("engine_instance", m[2])
		f.setNumber("sub_engine_instance", m[3])
	}
	if strings.HasPrefix(f.Text, "Data") {
		f.setRegisters(f.Text)
	}
}

func parsePeermem(text string) (Fact, bool) {
	return Fact{Kind: heelerv1.KindPeermem, Text: text}, true
}

func parseAER(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindAer, Text: text}
	if m := aerRoot.FindStringSubmatch(text); m != nil {
		if !f.address(m[5]) && !f.address(m[1]) {
			return Fact{}, false
		}
		f.set("reporter", m[1])
		f.set("multiple", m[2] != "")
		f.set("severity", aerSeverity(m[3], m[4]))
		return f, true
	}
	if m := aerBus.FindStringSubmatch(text); m != nil && f.address(m[1]) {
		f.set("severity", aerSeverity(m[2], m[3]))
		f.set("layer", strings.TrimSpace(m[4]))
		if m[5] != "" {
			f.set("agent", m[5])
		}
		return f, true
	}
	return Fact{}, false
}

// aerSeverity is corrected, nonfatal, fatal or uncorrected: what the kernel says, in one spelling.
func aerSeverity(word, degree string) string {
	if strings.HasPrefix(word, "Correct") {
		return "corrected"
	}
	switch strings.ToLower(strings.ReplaceAll(degree, "-", "")) {
	case "fatal":
		return "fatal"
	case "nonfatal":
		return "nonfatal"
	default:
		return "uncorrected"
	}
}

func parseHotplug(text string) (Fact, bool) {
	m := hotplug.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindLink, Text: text}
	f.address(m[1])
	f.set("bus", "pcie")
	f.set("slot", m[2])
	f.set("state", strings.ToLower(m[3]))
	return f, true
}

// parseMCE takes the line that names the bank; the others of the same error repeat or detail it.
func parseMCE(text string) (Fact, bool) {
	m := mceLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindMce, Text: text}
	f.setNumber("cpu", m[1])
	f.setNumber("bank", m[3])
	if status, ok := anyNumber("0x" + m[4]); ok {
		f.set("status", status)
	}
	return f, true
}

func parseEDAC(text string) (Fact, bool) {
	m := edacLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindEdac, Text: m[4]}
	f.set("controller", m[1])
	f.setNumber("errors", m[2])
	f.set("corrected", m[3] == "CE")
	return f, true
}

// parseOOMKill: the line comes just before the one that names the victim, and alone knows its cgroup.
func parseOOMKill(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindOom, Text: text, part: opens}
	for _, m := range oomMemcg.FindAllStringSubmatch(strings.TrimPrefix(text, "oom-kill:"), -1) {
		switch m[1] {
		case "pid":
			f.PID = number(m[2])
		case "task":
			f.Comm = m[2]
		case "constraint":
			f.set("constraint", m[2])
		case "task_memcg":
			f.set("cgroup", m[2])
		}
	}
	return f, f.PID != nil
}

func parseOOM(text string) (Fact, bool) {
	m := oomKilled.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindOom, PID: number(m[1]), Comm: m[2], Text: text, part: continues}
	f.set("memory_cgroup", strings.HasPrefix(text, "Memory cgroup"))
	return f, true
}

func parseHungTask(text string) (Fact, bool) {
	m := hungTask.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindHungTask, Comm: m[1], PID: number(m[2]), Text: text}
	f.setNumber("seconds", m[3])
	return f, true
}

func parseLockup(text string) (Fact, bool) {
	if m := softLock.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindSoftLockup, Comm: m[3], PID: number(m[4]), Text: text}
		f.setNumber("cpu", m[1])
		f.setNumber("seconds", m[2])
		f.set("hard", false)
		return f, true
	}
	if m := hardLock.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindSoftLockup, Text: text}
		f.setNumber("cpu", m[1])
		f.set("hard", true)
		return f, true
	}
	return Fact{}, false
}

func parseNVMe(text string) (Fact, bool) {
	m := nvmeLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindNvme, Text: m[2]}
	f.set("device", m[1])
	return f, true
}

func parseBlock(text string) (Fact, bool) {
	if m := blockLine.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindNvme, Text: text}
		f.set("device", m[2])
		f.setNumber("sector", m[3])
		return f, true
	}
	if m := nvmeBlock.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindNvme, Text: m[2]}
		f.set("device", m[1])
		return f, true
	}
	return Fact{}, false
}

func parseFilesystem(text string) (Fact, bool) {
	for _, line := range []*regexp.Regexp{ext4, xfs, btrfs} {
		if m := line.FindStringSubmatch(text); m != nil {
			f := Fact{Kind: heelerv1.KindFsReadonly, Text: text}
			f.set("device", m[1])
			return f, true
		}
	}
	return Fact{}, false
}

func parseMlx5(text string) (Fact, bool) {
	m := mlx5Line.FindStringSubmatch(text)
	if m == nil || linkLine.MatchString(text) || !mlx5Words.MatchString(m[3]) {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindMlx5, Text: m[3]}
	if !f.address(m[1]) {
		return Fact{}, false
	}
	if m[2] != "" {
		f.set("netdev", m[2])
	}
	if port := mlx5Port.FindStringSubmatch(m[3]); port != nil {
		f.setNumber("module", port[1])
		f.set("event", port[2])
	}
	return f, true
}

func parseLink(text string) (Fact, bool) {
	m := linkLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindLink, Text: strings.TrimSpace(text)}
	if m[1] != "" {
		f.address(m[1])
	}
	f.set("netdev", m[2])
	f.set("state", strings.ToLower(m[3]))
	return f, true
}
