package kmsg

import (
	"regexp"
	"strconv"
	"strings"
)

// What the texts of single XIDs say, as far as processors ask for it.
var (
	recoveryAction = regexp.MustCompile(`GPU recovery action changed from (0x[0-9a-fA-F]{1,8}) \(([^)]*)\) to (0x[0-9a-fA-F]{1,8}) \(([^)]*)\)`)
	causedBy       = regexp.MustCompile(`caused by previous Xid (\d{1,5})`)
	channel        = regexp.MustCompile(`\b[Cc]h(?:annel)?(?: ID)? ([0-9a-fA-F]{1,16})\b`)
	location       = regexp.MustCompile(`\(?GPC (\d{1,3}), TPC (\d{1,3})(?:, SM (\d{1,3}))?\)?`)
	esr            = regexp.MustCompile(`\b(0x[0-9a-fA-F]{1,16})=(0x[0-9a-fA-F]{1,16})`)
	mmuFault       = regexp.MustCompile(`MMU Fault: (?:ENGINE (\S+)(?: (.{1,80}?))? )?faulted @ (\S+?)\. Fault is of type (\S+)(?: (ACCESS_TYPE_\S+))?`)
	mmuClient      = regexp.MustCompile(`\bGPC(\d{1,3})\b`)
	nvlink4        = regexp.MustCompile(`NVLink: (fatal|non-?fatal) error detected on link (\d{1,3})\s*\(([^)]*)\)`)
	nvlink5        = regexp.MustCompile(`\b([A-Z][A-Z0-9_]+)\s+(Fatal|Nonfatal|Non-fatal|Link Fatal)\s+XC ?(\d)\s+i ?(\d)\s+Link\s+(-?\d{1,4})\s+[(\[]([^)\]]*)[)\]]`)
	registers      = regexp.MustCompile(`0x[0-9a-fA-F]{1,16}`)
	rpcTimeout     = regexp.MustCompile(`Timeout after (\d{1,6})s? of waiting for RPC response from GPU(\d{1,3}) GSP! Expected function (\d{1,6}) \((\w+)\)`)
	resetWords     = regexp.MustCompile(`RST: (Yes|No), D-RST: (Yes|No)`)
)

// XIDs with a text of their own.
const (
	xidGraphicsException = 13
	xidMMUFault          = 31
	xidNVLink            = 74
	xidContained         = 94
	xidUncontained       = 95
	xidRPCTimeout        = 119
	xidNVLink5First      = 144
	xidNVLink5Last       = 150
	xidRecoveryAction    = 154
)

func (f *Fact) xidDetail() {
	if m := causedBy.FindStringSubmatch(f.Text); m != nil {
		f.setNumber("caused_by", m[1])
	}
	if m := channel.FindStringSubmatch(f.Text); m != nil {
		f.set("channel", m[1])
	}
	switch code := *f.Code; {
	case code == xidGraphicsException:
		f.graphicsException()
	case code == xidMMUFault:
		f.mmuFault()
	case code == xidNVLink:
		f.nvlink4()
	case code == xidContained || code == xidUncontained:
		if m := resetWords.FindStringSubmatch(f.Text); m != nil {
			f.set("reset", m[1] == "Yes")
			f.set("drain_reset", m[2] == "Yes")
		}
	case code == xidRPCTimeout:
		if m := rpcTimeout.FindStringSubmatch(f.Text); m != nil {
			f.setNumber("timeout_s", m[1])
			f.setNumber("function", m[3])
			f.set("function_name", m[4])
		}
	case code >= xidNVLink5First && code <= xidNVLink5Last:
		f.nvlink5()
	case code == xidRecoveryAction:
		f.recoveryAction()
	}
}

func (f *Fact) setNumber(key, digits string) {
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
		f.set(key, n)
	}
}

func (f *Fact) graphicsException() {
	if m := location.FindStringSubmatch(f.Text); m != nil {
		f.setNumber("gpc", m[1])
		f.setNumber("tpc", m[2])
		f.setNumber("sm", m[3])
	}
	found := map[string]any{}
	for _, m := range esr.FindAllStringSubmatch(f.Text, -1) {
		if v, ok := anyNumber(m[2]); ok {
			found[strings.ToLower(m[1])] = v
		}
	}
	if len(found) > 0 {
		f.set("esr", found)
	}
}

func (f *Fact) mmuFault() {
	m := mmuFault.FindStringSubmatch(f.Text)
	if m == nil {
		return
	}
	for i, key := range []string{"engine", "client", "address", "fault", "access"} {
		if m[i+1] != "" {
			f.set(key, m[i+1])
		}
	}
	if g := mmuClient.FindStringSubmatch(m[2]); g != nil {
		f.setNumber("gpc", g[1])
	}
}

func (f *Fact) nvlink4() {
	m := nvlink4.FindStringSubmatch(f.Text)
	if m == nil {
		return
	}
	f.set("fatal", m[1] == "fatal")
	f.setNumber("link", m[2])
	f.setRegisters(m[3])
}

// nvlink5: the i field marks an error that was injected, and link -1 means that it is about no link. Drivers before
// R575 put spaces before the digits and brackets around the registers.
func (f *Fact) nvlink5() {
	m := nvlink5.FindStringSubmatch(f.Text)
	if m == nil {
		return
	}
	f.set("unit", m[1])
	f.set("fatal", m[2] == "Fatal" || m[2] == "Link Fatal")
	f.setNumber("xc", m[3])
	f.set("injected", m[4] != "0")
	f.setNumber("link", m[5])
	f.setRegisters(m[6])
}

func (f *Fact) setRegisters(s string) {
	var values []any
	for _, text := range registers.FindAllString(s, -1) {
		if v, ok := anyNumber(text); ok {
			values = append(values, v)
		}
	}
	if len(values) > 0 {
		f.set("registers", values)
	}
}

// recoveryAction goes by the numbers: the words differ from driver to driver.
func (f *Fact) recoveryAction() {
	m := recoveryAction.FindStringSubmatch(f.Text)
	if m == nil {
		return
	}
	from, okFrom := anyNumber(m[1])
	to, okTo := anyNumber(m[3])
	if !okFrom || !okTo {
		return
	}
	f.set("from", from)
	f.set("from_name", m[2])
	f.set("to", to)
	f.set("to_name", m[4])
}
