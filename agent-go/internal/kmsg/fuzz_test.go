package kmsg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"heeler.dev/schemas/go/heelerv1"
)

// checkEvent fails the test if an event cannot go on the bus or holds what it should not.
func checkEvent(t *testing.T, m *heelerv1.KernelEvent) {
	t.Helper()
	m.Header = heelerv1.Header{V: 1, Cluster: "c", Node: "n", Boot: "b", Seq: m.Seq, TS: max(m.TS, 0)}
	data, err := heelerv1.Encode(m)
	if err != nil {
		t.Fatalf("event cannot be sent: %v", err)
	}
	if _, err := heelerv1.DecodeAs(heelerv1.TypeHeader(m), data); err != nil {
		t.Fatalf("event cannot be read: %v", err)
	}
	for _, text := range []string{m.Text, m.Raw, m.Comm, m.PCI, m.UUID} {
		if !utf8.ValidString(text) || len(text) > longestRaw || strings.ContainsAny(text, "\x00\x1b\n\r") {
			t.Fatalf("event holds %q", text)
		}
	}
	if m.Kind == "" || m.Kind == heelerv1.KindUnknown || m.Count == nil || *m.Count == 0 {
		t.Fatalf("got %+v", m)
	}
}

// FuzzText: whatever the kernel's text, parsing returns a fact that is whole or none.
func FuzzText(f *testing.F) {
	f.Add("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	f.Fuzz(func(t *testing.T, text string) {
		fact, ok := NewParser().Parse(clean(text))
		if !ok {
			return
		}
		if fact.Kind == "" || fact.Kind == heelerv1.KindXid && (fact.Code == nil || fact.PCI == "") {
			t.Errorf("half a fact: %+v", fact)
		}
		if fact.part != whole && fact.part != opens && fact.thread == "" {
			t.Errorf("continues nothing: %+v", fact)
		}
	})
}

// FuzzRecord: whatever /dev/kmsg gives, a record is whole or refused.
func FuzzRecord(f *testing.F) {
	f.Add("4,812,99120331,-,caller=T1;NVRM: Xid (PCI:0000:3b:00): 31, pid=5, name=caf\\xc3\\xa9\n SUBSYSTEM=pci")
	f.Add(`3,9,1,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has`)
	f.Fuzz(func(t *testing.T, data string) {
		rec, err := ParseRecord(data)
		if err != nil {
			return
		}
		for _, text := range append([]string{rec.Text}, rec.More...) {
			if !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\x1b\n") {
				t.Errorf("text %q", text)
			}
		}
		if seq, ok := sequence(data); ok && seq != rec.Seq {
			t.Errorf("sequence %d and %d", seq, rec.Seq)
		}
		NewParser().record(&rec)
	})
}

// FuzzLine: whatever a tool printed, a line has a text or is refused.
func FuzzLine(f *testing.F) {
	for _, prefix := range prefixes {
		f.Add(prefix + xid79)
	}
	f.Add(`{"MESSAGE":[78,86,82,77,58,32,255],"_TRANSPORT":"kernel"}`)
	f.Fuzz(func(t *testing.T, line string) {
		l, err := ParseLine(line)
		if err == nil && !utf8.ValidString(l.Text) {
			t.Errorf("text %q", l.Text)
		}
	})
}

// FuzzStory: whatever lines follow each other, each event can be sent, and no line is counted twice.
func FuzzStory(f *testing.F) {
	f.Add("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/slurm/job_1,task=a,pid=7,uid=0\nKilled process 7 (a)", true)
	f.Fuzz(func(t *testing.T, lines string, any bool) {
		s := NewStream(any)
		var got []*heelerv1.KernelEvent
		for line := range strings.Lines(lines) {
			got = append(got, s.Line(line)...)
		}
		got = append(got, s.Flush()...)
		for _, m := range got {
			checkEvent(t, m)
			if !any && !*m.Trusted {
				t.Errorf("an event of someone else: %+v", m)
			}
		}
		if n := s.Counts; n.Foreign+n.Unreadable+n.Unmatched > int(s.ordinal)+n.Lines {
			t.Errorf("counts %+v", n)
		}
		if len(s.folder.held) != 0 {
			t.Error("something is held for ever")
		}
	})
}

// FuzzState: whatever is left of the file of positions, the source starts.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"boot":"b","log":"l","position":{"Ordinal":7,"Inode":1,"Offset":58,"Head":1,"HeadLength":58},"uuids":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		state, log := filepath.Join(dir, "state"), filepath.Join(dir, "l")
		if err := os.WriteFile(state, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, []byte("4,1,1,-;"+xid79+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := store{path: state, boot: "b", log: "l"}.load()
		if got.UUIDs == nil {
			t.Error("no map")
		}
		if err != nil {
			return
		}
		got.Position.Inode = inodeOf(log)
		r, err := open(log, got.Position)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		_, _ = r.next(0)
	})
}
