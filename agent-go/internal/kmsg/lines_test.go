package kmsg

import (
	"errors"
	"strings"
	"testing"
)

func TestARecordHasEscapesAndContinuationLines(t *testing.T) {
	r, err := ParseRecord("4,812,99120331,-,caller=T1;NVRM: Xid (PCI:0000:3b:00): 31, pid=5, name=caf\\xc3\\xa9\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0")
	if err != nil {
		t.Fatal(err)
	}
	if r.Seq != 812 || r.MonoUS != 99120331 || !r.Kernel() {
		t.Errorf("got %+v", r)
	}
	f := parse(t, r.Text)
	if *f.Code != 31 || *f.PID != 5 || f.Comm != "café" {
		t.Errorf("got %+v", f)
	}
	if strings.Contains(r.Raw, "SUBSYSTEM") {
		t.Error("dictionary lines are taken as text")
	}
}

func TestBrokenRecordsAreRefused(t *testing.T) {
	for _, data := range []string{"", "abc", "4,1,2;x", "x,1,2,-;y", "4,-1,2,-;y", "4,1,99999999999999999999999,-;y"} {
		if r, err := ParseRecord(data); err == nil {
			t.Errorf("%q became %+v", data, r)
		}
	}
}

func TestControlCharactersDoNotReachATerminal(t *testing.T) {
	r, err := ParseRecord(`4,1,2,-;a\x1b[2Jb\x0ac\xffd`)
	if err != nil {
		t.Fatal(err)
	}
	if r.Text != "a\uFFFD[2Jb\uFFFDc\uFFFDd" {
		t.Errorf("got %q", r.Text)
	}
}

func TestOnlyTheKernelIsTrusted(t *testing.T) {
	for head, kernel := range map[string]bool{"4": true, "0": true, "7": true, "8": false, "12": false, "30": false} {
		r, err := ParseRecord(head + ",55,900,-;NVRM: Xid (PCI:0000:3b:00): 79, x")
		if err != nil || r.Kernel() != kernel {
			t.Errorf("priority %s: kernel %v, %v", head, r.Kernel(), err)
		}
	}
}

const xid79 = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."

func TestLinesOfAllTools(t *testing.T) {
	for name, c := range map[string]struct {
		line    string
		mono    uint64
		foreign bool
		time    string
	}{
		"raw":           {line: "4,9,1000000,-;" + xid79, mono: 1000000},
		"raw foreign":   {line: "12,9,1000000,-;" + xid79, mono: 1000000, foreign: true},
		"bare":          {line: xid79},
		"dmesg":         {line: "[   12.345678] " + xid79, mono: 12345678},
		"dmesg caller":  {line: "[   12.345678][  T123] " + xid79, mono: 12345678},
		"dmesg -x":      {line: "kern  :err   : [   12.345678] " + xid79, mono: 12345678},
		"dmesg -x user": {line: "user  :err   : [   12.345678] " + xid79, mono: 12345678, foreign: true},
		"dmesg -T":      {line: "[Tue Dec  1 12:00:00 2026] " + xid79, time: "2026-12-01 12:00:00"},
		"dmesg iso":     {line: "2026-12-01T12:00:00,123456+00:00 " + xid79, time: "2026-12-01 12:00:00"},
		"kernel:":       {line: "kernel: " + xid79},
		"<4>":           {line: "<4>" + xid79},
		"<12>":          {line: "<12>" + xid79, foreign: true},
		"syslog":        {line: "Dec  1 12:00:00 gn1 kernel: [   12.345678] " + xid79, mono: 12345678},
		"syslog iso":    {line: "2026-12-01T12:00:00.123+00:00 gn1 kernel: " + xid79, time: "2026-12-01 12:00:00"},
		"syslog other":  {line: "Dec  1 12:00:00 gn1 logger[77]: " + xid79, foreign: true},
		"journal":       {line: `{"MESSAGE":"` + xid79 + `","_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","_SOURCE_MONOTONIC_TIMESTAMP":"5"}`, mono: 5},
		"journal other": {line: `{"MESSAGE":"` + xid79 + `","_TRANSPORT":"syslog","SYSLOG_IDENTIFIER":"kernel"}`, foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ParseLine(c.line)
			if err != nil {
				t.Fatal(err)
			}
			if l.Text != xid79 {
				t.Errorf("text %q", l.Text)
			}
			if l.MonoUS != c.mono || l.Foreign != c.foreign {
				t.Errorf("mono %d, foreign %v", l.MonoUS, l.Foreign)
			}
			if got := l.Time.UTC().Format("2006-01-02 15:04:05"); c.time != "" && strings.HasSuffix(c.line[:40], "+00:00") && got != c.time {
				t.Errorf("time %s", got)
			}
			if c.time != "" && l.Time.IsZero() {
				t.Error("no time")
			}
		})
	}
}

func TestJournalTextAsBytesAndNull(t *testing.T) {
	s := NewStream(false)
	events := s.Line(`{"MESSAGE":[78,86,82,77,58,32,88,105,100,32,40,80,67,73,58,48,48,48,48,58,51,98,58,48,48,41,58,32,55,57,44,32,255]}`)
	if len(events) != 1 || *events[0].Code != 79 || events[0].PCI != at3b || !strings.HasSuffix(events[0].Text, "\uFFFD") {
		t.Errorf("got %+v", events)
	}
	if _, err := ParseLine(`{"MESSAGE":null}`); !errors.Is(err, ErrNoText) {
		t.Errorf("null: %v", err)
	}
	s.Line(`{"MESSAGE":null}`)
	if s.Counts.Unreadable != 1 {
		t.Errorf("unreadable %d", s.Counts.Unreadable)
	}
}

func TestRawIsCutAtACharacter(t *testing.T) {
	if got := cut(strings.Repeat("a", longestRaw-1) + "é"); len(got) != longestRaw-1 {
		t.Errorf("%d bytes", len(got))
	}
}
