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

	thermalLine = regexp.MustCompile(`^(?:mce: )?CPU(\d{1,5}): (Core|Package) temperature( is)? above threshold, cpu clock (?:is )?throttled ` +
		`\(total events = (\d{1,20})\)`)
	thermalOver = regexp.MustCompile(`^(?:mce: )?CPU(\d{1,5}): (Core|Package) temperature/speed normal`)
	thermalTrip = regexp.MustCompile(`^thermal (\S{1,64}): .*[Cc]ritical temperature reached`)

	suppressed = regexp.MustCompile(`^(?:printk: )?(\w{1,64}): (\d{1,12}) (?:callbacks|output lines|messages) suppressed`)
	messages   = regexp.MustCompile(`^printk: (\d{1,12}) messages suppressed`)
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
	f.thread = "sxid " + f.PCI + " " + m[3]
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

// parseThermal: a processor is over its temperature, or no longer.
func parseThermal(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindThermal, Text: text}
	if m := thermalLine.FindStringSubmatch(text); m != nil {
		f.setNumber("cpu", m[1])
		f.set("level", strings.ToLower(m[2]))
		f.set("throttled", true)
		f.setNumber("total_events", m[4])
		return f, true
	}
	if m := thermalOver.FindStringSubmatch(text); m != nil {
		f.setNumber("cpu", m[1])
		f.set("level", strings.ToLower(m[2]))
		f.set("throttled", false)
		return f, true
	}
	if m := thermalTrip.FindStringSubmatch(text); m != nil {
		f.set("zone", m[1])
		f.set("critical", true)
		return f, true
	}
	return Fact{}, false
}

// ours begin the names of kernel functions that print lines of which something is known here. What others left out is
// not worth an event.
var ours = []string{
	"aer", "pci", "dpc", "mce", "edac", "ghes", "mlx5", "mlx4", "nv", "oom", "dump_header", "blk_", "print_req_error",
	"buffer_io_error", "ext4", "xfs", "btrfs", "bond", "rcu", "watchdog", "therm",
}

// parseSuppressed: the kernel says how many lines it left out, and of which function.
func parseSuppressed(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindFlood, Text: text}
	f.set("suppressed_by", "kernel")
	if m := messages.FindStringSubmatch(text); m != nil {
		f.countOf(m[1])
		return f, f.Count > 0
	}
	m := suppressed.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	name := strings.TrimLeft(m[1], "_")
	for _, prefix := range ours {
		if strings.HasPrefix(name, prefix) {
			f.set("function", m[1])
			f.countOf(m[2])
			return f, f.Count > 0
		}
	}
	return Fact{}, false
}

// countOf sets how many lines the text stands for, as far as it says so.
func (f *Fact) countOf(digits string) {
	if n := number(digits); n != nil {
		f.Count = *n
		f.set("suppressed", *n)
	}
}
