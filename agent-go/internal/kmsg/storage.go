package kmsg

import (
	"regexp"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

// NVMe drives, block devices, arrays and file systems.
var (
	nvmeLine = regexp.MustCompile(`^nvme (nvme\d{1,4}): (.*)$`)
	nvmeWord = []struct{ word, event string }{
		{"controller is down", "controller_down"}, {"Removing after probe", "removed"}, {"Disabling device after reset failure", "removed"},
		{"Removing ctrl", "removed"}, {"Device not ready", "not_ready"}, {"Device shutdown incomplete", "not_ready"},
		{"frozen state", "frozen"}, {"timeout", "timeout"}, {"Abort status", "abort"}, {"I/O error", "io_error"},
		{"I/O Error", "io_error"}, {"reset controller", "reset"}, {"resetting controller", "reset"},
		{"keep_alive", "path_loss"}, {"keep-alive", "path_loss"}, {"error recovery", "path_loss"}, {"Reconnecting in", "path_loss"},
		{"failfast expired", "path_loss"}, {"controller reset failed", "reset_failed"}, {"fatal status", "fatal"},
	}
	nvmePath  = regexp.MustCompile(`^block (nvme\w{1,32}): (no (?:usable|available) path - .*)$`)
	nvmeBlock = regexp.MustCompile(`^(nvme\d{1,4}[nc]\w{1,16}): (.*(?:error|Error|Aborted|Unrecovered|failed).*)$`)
	blockLine = regexp.MustCompile(`^(?:(?:blk_update_request|print_req_error|end_request): )?(?:critical (\S+) error|I/O error), ` +
		`dev (nvme\w{1,32}), sector (\d{1,20})`)
	bufferLine = regexp.MustCompile(`^Buffer I/O error on dev(?:ice)? (nvme\w{1,32}), logical block (\d{1,20})`)

	extLine = regexp.MustCompile(`^(?:EXT\d-fs|F2FS-fs|FAT-fs) (error |warning |)\(((?:device )?[^)]{1,64})\)(?: in [^:]{1,64})?:?\s*(.*)$`)
	jbdDev  = regexp.MustCompile(`^(?:Aborting journal on device|JBD2: .*\bon device|JBD2: .* for) (\S{1,64}?)\.?$`)
	xfsLine = regexp.MustCompile(`^XFS \(([^)]{1,64})\): (.*)$`)
	btrfs   = regexp.MustCompile(`^BTRFS:? (\w+):? \(device ([^):]{1,64}?)(?: state \w+)?\):? ?(.*)$`)

	mdFail    = regexp.MustCompile(`^md/(\S{1,16}?):(\S{1,16}): (Disk failure on (\S{1,64}?), disabling device\.?.*|.*(?:not enough operational|Cannot continue|Operation continuing).*)$`)
	mdLeft    = regexp.MustCompile(`Operation continuing on (\d{1,5}) devices`)
	mdLine    = regexp.MustCompile(`^md: (\S{1,16}?):? (.*(?:interrupted|fail|cannot|not enough|kicking|non-fresh|super_written gets error).*)$`)
	raidState = regexp.MustCompile(`(?i)\b(degraded|failed|offline|missing|critical)\b`)
)

func parseNVMe(text string) (Fact, bool) {
	if m := nvmeLine.FindStringSubmatch(text); m != nil {
		for _, w := range nvmeWord {
			if strings.Contains(m[2], w.word) {
				f := Fact{Kind: heelerv1.KindNvme, Text: m[2]}
				f.set("device", m[1])
				f.set("event", w.event)
				return f, true
			}
		}
		return Fact{}, false
	}
	if m := nvmeBlock.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindNvme, Text: m[2]}
		f.set("device", m[1])
		f.set("event", "io_error")
		return f, true
	}
	return Fact{}, false
}

// parseNVMePath: no way to a drive is left.
func parseNVMePath(text string) (Fact, bool) {
	m := nvmePath.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindNvme, Text: m[2]}
	f.set("device", m[1])
	f.set("event", "path_loss")
	return f, true
}

func parseBlock(text string) (Fact, bool) {
	m := blockLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindNvme, Text: text}
	f.set("device", m[2])
	f.setNumber("sector", m[3])
	f.set("event", "io_error")
	f.setText("error", m[1])
	return f, true
}

func parseBuffer(text string) (Fact, bool) {
	m := bufferLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindNvme, Text: text}
	f.set("device", m[1])
	f.setNumber("block", m[2])
	f.set("event", "io_error")
	return f, true
}

// filesystem makes the event. What happened is an error, an aborted journal, a shutdown, or that it is read-only now.
func filesystem(kind, device, event, text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindFsReadonly, Text: text}
	f.set("filesystem", kind)
	f.set("device", device)
	f.set("event", event)
	f.set("readonly", event == "readonly" || event == "shutdown")
	return f, true
}

func parseExt(text string) (Fact, bool) {
	if m := jbdDev.FindStringSubmatch(text); m != nil {
		return filesystem("jbd2", m[1], "journal_aborted", text)
	}
	m := extLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	kind, _, _ := strings.Cut(strings.ToLower(text), "-")
	device := strings.TrimPrefix(m[2], "device ")
	switch {
	case strings.Contains(text, "Remounting filesystem read-only"), strings.Contains(text, "has been set read-only"):
		return filesystem(kind, device, "readonly", text)
	case m[1] == "error ", strings.HasPrefix(m[3], "previous I/O error"), strings.Contains(text, "I/O error"):
		return filesystem(kind, device, "error", text)
	case strings.Contains(text, "hut down"):
		return filesystem(kind, device, "shutdown", text)
	}
	return Fact{}, false
}

func parseXFS(text string) (Fact, bool) {
	m := xfsLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	lower := strings.ToLower(m[2])
	switch {
	case strings.Contains(lower, "shutting down filesystem"), strings.Contains(lower, "has been shut down"),
		strings.Contains(lower, "shutdown"):
		return filesystem("xfs", m[1], "shutdown", text)
	case strings.Contains(lower, "corruption"), strings.Contains(lower, "i/o error"):
		return filesystem("xfs", m[1], "error", text)
	}
	return Fact{}, false
}

func parseBtrfs(text string) (Fact, bool) {
	m := btrfs.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	switch {
	case strings.Contains(m[3], "forced readonly"):
		return filesystem("btrfs", m[2], "readonly", text)
	case m[1] == "error" || m[1] == "critical":
		return filesystem("btrfs", m[2], "error", text)
	}
	return Fact{}, false
}

// parseMD takes what the kernel's own arrays say when a member fails.
func parseMD(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindRaid, Text: text}
	if m := mdFail.FindStringSubmatch(text); m != nil {
		f.set("level", m[1])
		f.set("device", m[2])
		f.set("event", "degraded")
		if m[4] != "" {
			f.set("event", "member_failed")
			f.set("member", m[4])
		} else if !strings.Contains(m[3], "continuing") {
			f.set("event", "failed")
		}
		if n := mdLeft.FindStringSubmatch(m[3]); n != nil {
			f.setNumber("members_left", n[1])
		}
		return f, true
	}
	if m := mdLine.FindStringSubmatch(text); m != nil {
		f.set("device", m[1])
		f.set("event", "error")
		return f, true
	}
	return Fact{}, false
}

// parseRaidCard takes what array controllers say about their virtual drives.
func parseRaidCard(text string, d *device) (Fact, bool) {
	m := raidState.FindStringSubmatch(d.rest)
	if m == nil || !strings.Contains(d.rest, "VD ") && !strings.Contains(d.rest, "olume") && !strings.Contains(d.rest, "PD ") {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindRaid, Text: d.rest}
	f.set("device", d.driver)
	f.set("event", strings.ToLower(m[1]))
	return f, f.address(d.address)
}
