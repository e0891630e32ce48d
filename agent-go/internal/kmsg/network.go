package kmsg

import (
	"regexp"
	"strings"

	"heeler.dev/schemas/go/heelerv1"
)

// Network cards, their links and bonds.
var (
	mlx5Place  = regexp.MustCompile(`^\w{1,64}:\d{1,6}:(?:\(pid \d{1,10}\):)? ?`)
	mlx5Port   = regexp.MustCompile(`^Port module event(?:\[\w+\])?: module (\d{1,3}), (.*)$`)
	mlx5Power  = regexp.MustCompile(`\((\d{1,5})W\)`)
	mlx5Synd   = regexp.MustCompile(`^synd (0x[0-9a-fA-F]{1,8}): (.*)$`)
	mlx5Health = regexp.MustCompile(`^Health issue observed, (.*?), severity\((\d{1,3})\) (\w+):?$`)
	mlx5Dump   = regexp.MustCompile(`^(assert_var\[\d\]|assert_exit_ptr|assert_callra|hw_id|ext_synd|raw fw_ver|fw_ver|rfr|time|irisc_index|severity|full|` +
		`FW is unable)(?:[ :]+(\S*)|$)`)
	mlx5Cmd = regexp.MustCompile(`\b([A-Z][A-Z0-9_]{3,40})\((0x[0-9a-fA-F]{1,4})\)(?: op_mod\((0x[0-9a-fA-F]{1,4})\))? (?:failed|timeout)` +
		`(?:, status (.{1,64}?)\((0x[0-9a-fA-F]{1,4})\), syndrome \((0x[0-9a-fA-F]{1,8})\)(?:, err\((-?\d{1,6})\))?)?`)
	mlx5About = []struct {
		about string
		words []string
	}{
		{"power", []string{"power"}},
		{"temperature", []string{"igh temperature", "igh Temperature"}},
		{"health", []string{"health", "Fatal error", "fatal error", "FW fatal", "poll failed", "handling bad device", "unrecoverable", "assert"}},
		{"tx_timeout", []string{"TX timeout", "transmit queue"}},
		{"command", []string{"cmd_out_err", "ACCESS_REG", "cmd_exec", "timeout. Will cause a leak"}},
		{"firmware", []string{"irmware", "FW "}},
		{"other", []string{"failed", "Failed"}},
	}

	linkHead = regexp.MustCompile(`^([\w.@-]{1,32}): (?:[\w.-]{1,16}: )?(?:NIC |NIC Copper |\w+ )?[Ll]ink (?:is )?([Uu]p|[Dd]own|UP|DOWN)\b(.*)$`)
	linkRest = regexp.MustCompile(`^(?:[\w.-]{1,16}: )?(?:([\w.@-]{1,32}):? )?(?:NIC |NIC Copper )?[Ll]ink (?:is )?([Uu]p|[Dd]own|UP|DOWN)\b`)
	carrier  = regexp.MustCompile(`^(?:systemd-networkd\[\d{1,10}\]: )?([\w.@-]{1,32}): (Lost|Gained) carrier$`)
	watchdog = regexp.MustCompile(`^NETDEV WATCHDOG: (?:CPU: \d+: )?([\w.@-]{1,32}) \(([^)]{1,32})\): transmit queue (\d{1,6}) timed out`)

	bondLink = regexp.MustCompile(`^([\w.@-]{1,32}): (?:\(slave ([\w.@-]{1,32})\): )?link status (definitely )?(down|up)( again)?` +
		`(?:,? for (?:active )?(?:backup )?interface(?: ([\w.@-]{1,32}))?)?`)
	bondState = regexp.MustCompile(`^([\w.@-]{1,32}): (now running without any active interface|active interface up)`)
)

// parseMlx5 takes what the driver of ConnectX cards says about modules, power, health and firmware.
func parseMlx5(text string, d *device) (Fact, bool) {
	if f, ok := parseDriverLink(text, d); ok {
		return f, true
	}
	f := Fact{Kind: heelerv1.KindMlx5}
	if !f.address(d.address) {
		return Fact{}, false
	}
	f.setText("netdev", d.netdev)
	f.thread = "mlx5 " + d.address
	return f.mlx5(d.rest)
}

// parseMlx5Plain takes lines that name no device.
func parseMlx5Plain(text string) (Fact, bool) {
	f := Fact{Kind: heelerv1.KindMlx5, thread: "mlx5"}
	return f.mlx5(strings.TrimPrefix(strings.TrimPrefix(text, "mlx5_core: "), "INFO: "))
}

func (f *Fact) mlx5(rest string) (Fact, bool) {
	place := mlx5Place.FindString(rest)
	f.Text = rest
	said := rest[len(place):]
	if strings.HasPrefix(said, "firmware version") || strings.HasPrefix(said, "PCIe slot") {
		return f.mlx5Slot(said)
	}
	if m := mlx5Port.FindStringSubmatch(said); m != nil {
		f.set("about", "module")
		f.setNumber("module", m[1])
		f.set("event", m[2])
		return *f, true
	}
	if m := mlx5Health.FindStringSubmatch(said); m != nil {
		f.part, f.once = either, "issue"
		f.set("about", "health")
		f.set("issue", m[1])
		f.setNumber("severity", m[2])
		return *f, true
	}
	if m := mlx5Synd.FindStringSubmatch(said); m != nil {
		f.part, f.once = either, "syndrome"
		f.set("about", "health")
		f.setHex("syndrome", m[1])
		f.set("syndrome_text", strings.TrimSuffix(m[2], "."))
		return *f, true
	}
	if m := mlx5Dump.FindStringSubmatch(said); m != nil {
		f.part = either
		f.set("about", "health")
		if m[2] != "" && m[1] != "FW is unable" {
			f.set(strings.NewReplacer(" ", "_", "[", "_", "]", "").Replace(m[1]), m[2])
		}
		return *f, true
	}
	return f.mlx5Other(place, said)
}

// mlx5Slot: what the slot can give is worth an event only if it is not enough, or enough again.
func (f *Fact) mlx5Slot(said string) (Fact, bool) {
	m := mlx5Power.FindStringSubmatch(said)
	if m == nil || !strings.Contains(said, "sufficient power") {
		return Fact{}, false
	}
	f.set("about", "power")
	f.set("insufficient", false)
	f.setNumber("power_w", m[1])
	f.thread = ""
	return *f, true
}

func (f *Fact) mlx5Other(place, said string) (Fact, bool) {
	about := ""
	for _, a := range mlx5About {
		for _, word := range a.words {
			if about == "" && (strings.Contains(said, word) || strings.Contains(place, word)) {
				about = a.about
			}
		}
	}
	if m := mlx5Cmd.FindStringSubmatch(said); m != nil {
		about = "command"
		f.set("command", m[1])
		f.setHex("opcode", m[2])
		f.setText("status", m[4])
		if m[6] != "" {
			f.setHex("syndrome", m[6])
		}
		f.setText("err", m[7])
	}
	if about == "" {
		return Fact{}, false
	}
	f.set("about", about)
	thread := f.thread
	f.thread = ""
	if about == "power" {
		f.set("insufficient", strings.Contains(said, "insufficient"))
		if m := mlx5Power.FindStringSubmatch(said); m != nil {
			f.setNumber("power_w", m[1])
		}
	}
	if strings.Contains(said, "health compromised") || strings.HasPrefix(said, "Fatal error") {
		f.part, f.thread = opens, thread
	}
	return *f, true
}

// parseDriverLink: a driver says that the link of its interface went up or down.
func parseDriverLink(text string, d *device) (Fact, bool) {
	m := linkRest.FindStringSubmatch(d.rest)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindLink, Text: strings.TrimSpace(text)}
	if d.netdev == "" && m[1] != "NIC" {
		d.netdev = m[1]
	}
	f.setText("netdev", d.netdev)
	f.set("state", strings.ToLower(m[2]))
	return f, f.address(d.address)
}

func parseLink(text string) (Fact, bool) {
	if d, ok := deviceLine(text); ok {
		return parseDriverLink(text, &d)
	}
	f := Fact{Kind: heelerv1.KindLink, Text: strings.TrimSpace(text)}
	if m := carrier.FindStringSubmatch(text); m != nil {
		f.set("netdev", m[1])
		f.set("state", map[string]string{"Lost": "down", "Gained": "up"}[m[2]])
		f.set("carrier", strings.ToLower(m[2]))
		return f, true
	}
	if m := linkHead.FindStringSubmatch(text); m != nil {
		f.set("netdev", m[1])
		f.set("state", strings.ToLower(m[2]))
		return f, true
	}
	return Fact{}, false
}

func parseNetdevWatchdog(text string) (Fact, bool) {
	m := watchdog.FindStringSubmatch(text)
	if m == nil {
		return Fact{}, false
	}
	f := Fact{Kind: heelerv1.KindLink, Text: text}
	if m[2] == "mlx5_core" {
		f.Kind = heelerv1.KindMlx5
		f.set("about", "tx_timeout")
	}
	f.set("netdev", m[1])
	f.set("state", "tx timeout")
	f.setNumber("queue", m[3])
	return f, true
}

func parseBond(text string) (Fact, bool) {
	rest := strings.TrimPrefix(text, "bonding: ")
	f := Fact{Kind: heelerv1.KindLink, Text: text}
	if m := bondLink.FindStringSubmatch(rest); m != nil {
		f.set("bond", m[1])
		f.setText("netdev", m[2]+m[6])
		f.set("state", m[4])
		f.set("definite", m[3] != "")
		return f, m[2]+m[6] != "" || m[3] != ""
	}
	if m := bondState.FindStringSubmatch(rest); m != nil {
		f.set("bond", m[1])
		f.set("netdev", m[1])
		f.set("state", map[bool]string{true: "up", false: "down"}[m[2] == "active interface up"])
		f.set("definite", true)
		return f, true
	}
	return Fact{}, false
}
