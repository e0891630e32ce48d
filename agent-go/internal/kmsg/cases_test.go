package kmsg

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"heeler.dev/schemas/go/heelerv1"
)

// prefixes are what tools put before a line of the kernel.
var prefixes = map[string]string{
	"none": "", "dmesg": "[   12.345678] ", "dmesg caller": "[   12.345678][  T123] ", "dmesg -x": "kern  :err   : [   12.345678] ",
	"dmesg -T": "[Tue Dec  1 12:00:00 2026] ", "dmesg -d": "[   12.345678 <    0.000002>] ", "dmesg -e": "[Dec 1 12:00] ",
	"dmesg -e, next": "[  +0.000012] ", "dmesg iso": "2026-12-01T12:00:00,123456+01:00 ", "dmesg -Tx": "kern  :warn  : [Tue Dec  1 12:00:00 2026] ",
	"raw": "4,77,12345678,-;", "raw with caller": "4,77,12345678,-,caller=T1;", "tag": "kernel: ", "priority": "<4>", "priority and stamp": "<4>[   12.345678] ",
	"syslog": "Dec  1 12:00:00 gn1 kernel: ", "syslog with stamp": "Dec  1 12:00:00 gn1 kernel: [   12.345678] ", "syslog high": "Dec 11 12:00:00.123 gn-1.example kernel: ",
	"rsyslog": "2026-12-01T12:00:00.123456+01:00 gn1 kernel: ", "RFC 5424": "<4>1 2026-12-01T12:00:00.123456Z gn1 kernel - - - ",
	"journal iso": "2026-12-01T12:00:00+0100 gn1 kernel: ", "journal full": "Tue 2026-12-01 12:00:00 CET gn1 kernel: ", "journal full UTC": "Tue 2026-12-01 12:00:00 UTC gn1 kernel: ",
	"journal monotonic": "[   12.345678] gn1 kernel: ", "journal unix": "1764590400.123456 gn1 kernel: ",
}

func TestEveryToolsPrefixComesOffEveryGenerationsXid(t *testing.T) {
	for text, code := range map[string]uint64{
		"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.":                                                  79,
		"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.":                 79,
		"NVRM: Xid (0000:3b:00): 62, 1a2b(3c4d) 00000000":                                                              62,
		"NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000011, engmask 00000201, intr 20000000":                                 31,
		"NVRM: Xid (PCI:00000000:3B:00.0): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)":        154,
		"NVRM: GPU3 Xid (PCI:0000:3b:00 GPU-I:02 GPU-CI:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception:": 13,
	} {
		for tool, prefix := range prefixes {
			for _, end := range []string{"", "\r", "\r\n", "\x00"} {
				got := events(prefix + text + end)
				if len(got) != 1 {
					t.Fatalf("%s: %d events of %q", tool, len(got), prefix+text)
				}
				m := got[0]
				if *m.Code != code || m.PCI != at3b || m.PID != nil || m.Comm != "" || !*m.Trusted {
					t.Errorf("%s: %q became %+v", tool, prefix+text, m)
				}
			}
		}
	}
}

func TestAnEventsTimeIsThatOfItsLine(t *testing.T) {
	at := func(line string) time.Time {
		t.Helper()
		got := events(line)
		if len(got) != 1 {
			t.Fatalf("%d events", len(got))
		}
		return time.Unix(0, got[0].TS).UTC()
	}
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for line, want := range map[string]time.Time{
		"2026-12-01T12:00:00,123456+00:00 " + xid79:                noon.Add(123456 * time.Microsecond),
		"2026-12-01T14:00:00.5+02:00 gn1 kernel: " + xid79:         noon.Add(500 * time.Millisecond),
		"2026-12-01T04:30:00-0730 gn1 kernel: " + xid79:            noon,
		"Tue 2026-12-01 12:00:00 UTC gn1 kernel: " + xid79:         noon,
		fmt.Sprintf("%d.000000 gn1 kernel: ", noon.Unix()) + xid79: noon,
	} {
		if got := at(line); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

func TestADateWithoutAYearIsTheNewestThatIsNotToCome(t *testing.T) {
	now := time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]int{"Dec 31 23:00:00": 2026, "Jan  1 10:00:00": 2027, "Jan  2 20:00:00": 2027, "Feb 29 10:00:00": 2024} {
		date, err := time.Parse("Jan _2 15:04:05", text)
		if err != nil {
			t.Fatal(err)
		}
		if got := withYear(date, now); got.Year() != want || got.Day() != date.Day() {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func TestALossAndItsXidNameTheSameGPU(t *testing.T) {
	got := events(
		"NVRM: GPU at PCI:0000:b3:00: GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000",
		"NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.",
		"NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
		"NVRM: The NVIDIA GPU 0000:b3:00.0",
		"NVRM: (PCI ID: 10de:0000) installed in this system has",
		"NVRM: fallen off the bus and is not responding to commands.",
	)
	if len(got) != 4 {
		t.Fatalf("%d events", len(got))
	}
	for _, m := range got {
		if m.PCI != "0000:b3:00" || m.UUID != "GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000" {
			t.Errorf("%s of %q %q", m.Kind, m.PCI, m.UUID)
		}
	}
}

func TestLinesOfSomeoneElseAreForeign(t *testing.T) {
	for name, line := range map[string]string{
		"raw, user":             "12,55,900,-;" + xid79,
		"raw, daemon":           "30,55,900,-;systemd-networkd[812]: ib0: Lost carrier",
		"journal, syslog":       `{"MESSAGE":"` + xid79 + `","_TRANSPORT":"syslog","SYSLOG_IDENTIFIER":"kernel"}`,
		"journal, tag only":     `{"MESSAGE":"` + xid79 + `","SYSLOG_IDENTIFIER":"nvidia-test"}`,
		"journal, odd facility": `{"MESSAGE":"` + xid79 + `","_TRANSPORT":"kernel","SYSLOG_FACILITY":["0","1"]}`,
		"syslog":                "Dec  1 12:00:00 gn1 logger: " + xid79,
		"priority":              "<13>" + xid79,
		"RFC 5424":              "<13>1 2026-12-01T12:00:00Z gn1 logger 77 - - " + xid79,
		"dmesg":                 "[   12.345678] systemd-networkd[812]: ib0: Lost carrier",
	} {
		s := NewStream(false)
		if got := append(s.Line(line), s.Flush()...); len(got) != 0 || s.Counts.Foreign != 1 {
			t.Errorf("%s: %d events, %d foreign", name, len(got), s.Counts.Foreign)
		}
		got := events(line)
		if len(got) != 1 || *got[0].Trusted {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestLinesThatALoggerLeftOutAreCounted(t *testing.T) {
	const head = "Dec  1 12:00:00 gn1 "
	got := events(
		head+"kernel: "+xid79,
		head+"last message repeated 4 times",
		head+"kernel: [   12.3] message repeated 7 times: [ [   12.2] "+xid79+"]",
		head+"kernel: usb 1-1: something",
		head+"last message repeated 9 times",
	)
	var sum uint64
	for _, m := range got {
		if *m.Code != 79 || m.PCI != at3b {
			t.Errorf("got %+v", m)
		}
		sum += *m.Count
	}
	if len(got) != 3 || sum != 12 {
		t.Errorf("%d events for %d lines", len(got), sum)
	}
}

func TestLinesThatTheKernelLeftOutAreCounted(t *testing.T) {
	for line, count := range map[string]uint64{
		"aer_print_error: 120 callbacks suppressed":  120,
		"mlx5_core_events: 7 callbacks suppressed":   7,
		"printk: 33 messages suppressed.":            33,
		"buffer_io_error: 48 callbacks suppressed":   48,
		"__ext4_error_inode: 2 callbacks suppressed": 2,
	} {
		got := events(line)
		if len(got) != 1 || got[0].Kind != heelerv1.KindFlood || *got[0].Count != count {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestNothingStopsAStream(t *testing.T) {
	s := NewStream(true)
	var got []*heelerv1.KernelEvent
	for _, line := range []string{
		"", "\n", "\x00\x00\x00", "\xff\xfe\xfd", strings.Repeat("A", 1<<20), xid79 + strings.Repeat("\xff", 1<<20), "{", `{"MESSAGE":`, `{"MESSAGE":null}`,
		`{"MESSAGE":[1,2,300]}`, "4,1,2", "4,99999999999999999999999,2,-;x", " SUBSYSTEM=pci", "\ufeff" + xid79, "\x00\x00" + xid79, `{"MESSAGE":{"a":1}}`,
		`{"MESSAGE":"` + xid79 + `","__REALTIME_TIMESTAMP":12}`, "[" + strings.Repeat("9", 400) + ".1] x",
	} {
		got = append(got, s.Line(line)...)
	}
	got = append(got, s.Flush()...)
	xids := 0
	for _, m := range got {
		if m.Kind == heelerv1.KindXid && *m.Code == 79 && len(m.Raw) <= longestRaw && len(m.Text) <= longestRaw {
			xids++
		}
	}
	if xids != 4 || len(got) != 4 {
		t.Errorf("%d XIDs among %d events", xids, len(got))
	}
}
