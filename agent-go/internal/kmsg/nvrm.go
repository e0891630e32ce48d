package kmsg

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"heeler.dev/schemas/go/heelerv1"
)

// The forms below hold for all driver generations seen so far: with and without "PCI:", with MIG instances, with 4 or 8
// digits of domain, with and without a function, and with the unknown process of old and new drivers.
var (
	xidLine = regexp.MustCompile(`^NVRM: (?:GPU ?\d+ )?Xid \((?:PCI:)?([0-9a-fA-F:.]{7,20})` +
		`(?: GPU-I:(\d{1,5}))?(?: GPU-CI:(\d{1,5}))?\): (\d{1,5})(?:,\s*(.*))?$`)
	xidProcess = regexp.MustCompile(`^pid='?(\d{1,10}|<unknown>)'?(?:,\s*(.*))?$`)
	uuidLine   = regexp.MustCompile(`^NVRM: GPU at (?:PCI:)?([0-9a-fA-F:.]{7,20}): (GPU-[0-9a-fA-F-]{36})$`)
	lostLine   = regexp.MustCompile(`^NVRM: GPU (?:at (?:PCI:)?)?([0-9a-fA-F:.]{7,20}): GPU has fallen off the bus`)
	lostFirst  = regexp.MustCompile(`^NVRM: The NVIDIA GPU ([0-9a-fA-F:.]{7,20})(.*)$`)
	rmInit     = regexp.MustCompile(`^NVRM: (?:GPU (?:at (?:PCI:)?)?([0-9a-fA-F:.]{7,20}): )?` +
		`(RmInitAdapter failed.*|rm_init_adapter failed.*)$`)
	probeFailed = regexp.MustCompile(`^NVRM: The NVIDIA probe routine (failed for \d+ device|was not called for \d+ device)`)
)

func parseNVRM(text string) (Fact, bool) {
	for _, parse := range []func(string) (Fact, bool){parseXid, parseUUID, parseLost, parseRmInit} {
		if f, ok := parse(text); ok {
			return f, true
		}
	}
	return Fact{}, false
}

func parseXid(text string) (Fact, bool) {
	m := xidLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindXid, Code: number(m[4]), GI: number(m[2]), CI: number(m[3])}
	if f.Code == nil || !f.address(m[1]) {
		return Fact{}, false
	}
	f.process(m[5])
	f.xidDetail()
	return f, true
}

// process takes the process off the front of what follows the code. Its name may hold anything, commas too.
func (f *Fact) process(rest string) {
	m := xidProcess.FindStringSubmatch(rest)
	if m == nil {
		f.Text = rest
		return
	}
	f.PID = number(m[1])
	rest, named := strings.CutPrefix(m[2], "name=")
	if !named {
		f.Text = rest
		return
	}
	comm, message := splitName(rest)
	if comm != "<unknown>" {
		f.Comm = comm
	}
	f.Text = message
}

const longestComm = 15 // bytes; the kernel keeps no more of a name

// splitName parts a process name from the message behind it. Names may hold ", " themselves, so of all places where
// one could end, the first is taken behind which a message begins as the driver begins one.
func splitName(s string) (comm, message string) {
	first := -1
	for at := 0; at <= min(len(s), 2*longestComm); at++ {
		if !strings.HasPrefix(s[at:], ", ") {
			continue
		}
		if first >= 0 && at > longestComm {
			break
		}
		if first < 0 {
			first = at
		}
		if beginsMessage(s[at+2:]) {
			return s[:at], s[at+2:]
		}
	}
	if first >= 0 {
		return s[:first], s[first+2:]
	}
	if len(s) <= longestComm {
		return s, ""
	}
	end := longestComm
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end], s[end:]
}

func beginsMessage(s string) bool {
	for _, beginning := range []string{
		"Ch ", "Channel ", "channel ", "GPU ", "Graphics ", "MMU ", "NVLink", "Timeout ", "DBE ", "Row Remapper", "Contained",
		"Uncontained", "caused by", "Reset ", "Unable ", "GSP ",
	} {
		if strings.HasPrefix(s, beginning) {
			return true
		}
	}
	return false
}

func parseUUID(text string) (Fact, bool) {
	m := uuidLine.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindGpuUUID, UUID: "GPU-" + strings.ToLower(m[2][len("GPU-"):])}
	return f, f.address(m[1])
}

// lostText is what the driver prints on the last of the three lines of a loss at probe time.
const lostText = "fallen off the bus"

func parseLost(text string) (Fact, bool) {
	if m := lostLine.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindGpuLost, Text: "GPU has fallen off the bus."}
		return f, f.address(m[1])
	}
	if m := lostFirst.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindGpuLost, Text: strings.TrimPrefix(text, "NVRM: "), part: opens}
		if strings.Contains(text, lostText) {
			f.part = whole
		}
		return f, f.address(m[1])
	}
	after := strings.TrimPrefix(text, "NVRM: ")
	if strings.HasPrefix(after, "(PCI ID: ") || strings.HasPrefix(after, lostText) ||
		strings.HasPrefix(after, "installed in this system has") {
		return Fact{Kind: heelerv1.KindGpuLost, Text: after, part: continues}, true
	}
	return Fact{}, false
}

func parseRmInit(text string) (Fact, bool) {
	if m := rmInit.FindStringSubmatch(text); m != nil {
		f := Fact{Kind: heelerv1.KindRmInit, Text: m[2]}
		return f, m[1] == "" || f.address(m[1])
	}
	if probeFailed.MatchString(text) {
		return Fact{Kind: heelerv1.KindRmInit, Text: strings.TrimPrefix(text, "NVRM: ")}, true
	}
	return Fact{}, false
}

// number reads a whole number; nil for none.
func number(s string) *uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// anyNumber reads a whole number that may be hexadecimal.
func anyNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 0, 64)
	return n, err == nil
}
