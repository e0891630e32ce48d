package kmsg

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heeler.dev/agent-go/internal/witness"
	"heeler.dev/schemas/go/heelerv1"
)

func TestALogThatNeverRestsIsLiveAllTheSame(t *testing.T) {
	o := options(t.TempDir())
	o.GPUs = gpus{heelerv1.GpuLost}
	write(t, o.Path, "6,1,1,-;noise\n")
	s := &sink{}
	follow(t, o, s)
	stop := make(chan struct{})
	var noise sync.WaitGroup
	noise.Add(1)
	go func() {
		defer noise.Done()
		for i := 2; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				write(t, o.Path, fmt.Sprintf("6,%d,1,-;noise\n", i))
			}
		}
	}()
	time.Sleep(300 * time.Millisecond)
	write(t, o.Path, "4,9999,1,-;"+xid79+"\n")
	got := s.wait(t, 1)[0]
	close(stop)
	noise.Wait()
	if *got.ApproximateTS || got.GpuState != heelerv1.GpuLost {
		t.Errorf("got %+v", got)
	}
}

// slow is a GPU that takes its time to answer.
type slow struct {
	asked  atomic.Int32
	answer chan struct{}
}

func (g *slow) ByPCI(string) string { return "GPU-x" }
func (g *slow) Recheck(string, time.Duration) heelerv1.GpuState {
	g.asked.Add(1)
	<-g.answer
	return heelerv1.GpuHung
}

func TestAGPUThatHangsHoldsNoOtherLineBack(t *testing.T) {
	o := options(t.TempDir())
	g := &slow{answer: make(chan struct{})}
	o.GPUs = g
	write(t, o.Path, "6,1,1,-;noise\n")
	s := &sink{}
	follow(t, o, s)
	time.Sleep(5 * filePoll)
	write(t, o.Path, "4,2,1,-;"+xid79+"\n4,3,1,-;NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)\n"+
		"4,4,1,-;NVRM: Xid (PCI:0000:5c:00): 48, DBE\n")
	if got := s.wait(t, 1); *got[0].Code != 48 || got[0].GpuState != "" {
		t.Errorf("first came %+v", got[0])
	}
	close(g.answer)
	for _, m := range s.wait(t, 3)[1:] {
		if m.GpuState != heelerv1.GpuHung || len(m.Witness) != 2 {
			t.Errorf("got %+v", m)
		}
	}
	if n := g.asked.Load(); n != 1 {
		t.Errorf("the GPU was asked %d times at once", n)
	}
}

func TestWhichLinesAskTheGPU(t *testing.T) {
	for line, asks := range map[string]bool{
		xid79: true,
		"NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.": true,
		"NVRM: Xid (PCI:0000:3b:00): 119, pid=5, name=p, Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).": true,
		"NVRM: Xid (PCI:0000:3b:00): 120, GSP task exception":                                                      true,
		"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)": true,
		"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)":          true,
		"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)": false,
		"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)":          false,
		"NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000011":                                                              false,
	} {
		f := parse(t, line)
		if endangers(&f) != asks {
			t.Errorf("%s", line)
		}
	}
}

func TestAnXidNamesNVMLWhereItSawItToo(t *testing.T) {
	o := options(t.TempDir())
	book := witness.New[int]()
	book.Watch([]string{at3b})
	o.Witnesses = book
	write(t, o.Path, "6,1,1,-;noise\n")
	s := &sink{}
	follow(t, o, s)
	time.Sleep(5 * filePoll)
	fault := witness.Fault{PCI: at3b, Code: 48}
	book.Event(fault, time.Now(), 1)
	const dbe = "NVRM: Xid (PCI:0000:3b:00): 48, DBE (double bit error)\n"
	write(t, o.Path, "4,2,1,-;"+dbe)
	if got := s.wait(t, 1)[0]; len(got.Witness) != 2 || got.Witness[1] != "nvml" {
		t.Errorf("got %v", got.Witness)
	}
	write(t, o.Path, "4,3,1,-;"+dbe)
	if got := s.wait(t, 2)[1]; len(got.Witness) != 1 {
		t.Errorf("got %v", got.Witness)
	}
	book.Event(fault, time.Now(), 2)
	if got := book.Due(time.Now().Add(time.Minute)); len(got) != 0 {
		t.Errorf("an event that its line told is told again: %v", got)
	}
}

func TestCopyAndTruncate(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1)+xidLineOf(2, 2))
	s := &sink{}
	follow(t, o, s)
	s.wait(t, 2)
	if err := os.WriteFile(o.Path, []byte(xidLineOf(3, 3)), 0o600); err != nil { // the same inode, shorter
		t.Fatal(err)
	}
	s.wait(t, 3)
	// The same inode, cut to nothing and grown beyond where it was.
	if err := os.WriteFile(o.Path, []byte(xidLineOf(4, 4)+xidLineOf(5, 5)+xidLineOf(6, 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	expectPIDs(t, s.wait(t, 6), 6)
}

func TestAnotherFileOfTheSameInodeIsReadFromItsStart(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1)+xidLineOf(2, 2))
	s := &sink{}
	_, stop := follow(t, o, s)
	s.wait(t, 2)
	stop()
	// What a file system does that gives a new file the number of a deleted one.
	if err := os.WriteFile(o.Path, []byte(xidLineOf(3, 3)+xidLineOf(4, 4)+xidLineOf(5, 5)), 0o600); err != nil {
		t.Fatal(err)
	}
	follow(t, o, s)
	expectPIDs(t, s.wait(t, 5), 5)
}

func TestARotationInTheMiddleOfWriting(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, xidLineOf(1, 1))
	s := &sink{}
	follow(t, o, s)
	s.wait(t, 1)
	for i := 2; i <= 40; i++ {
		if i%4 == 0 {
			old := filepath.Join(filepath.Dir(o.Path), fmt.Sprint("kmsg.", i))
			if err := os.Rename(o.Path, old); err != nil {
				t.Fatal(err)
			}
			write(t, old, xidLineOf(i, i)) // the last words of a writer that still has it open
			write(t, o.Path, "")
			time.Sleep(60 * time.Millisecond) // a rotation is no race: the reader has its time
			continue
		}
		write(t, o.Path, xidLineOf(i, i))
	}
	expectPIDs(t, s.wait(t, 40), 40)
}

func TestTheKernelsManyLinesInOneRecordAreOneEvent(t *testing.T) {
	o := options(t.TempDir())
	write(t, o.Path, `3,9,1,-;NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\x0aNVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)`+"\n"+
		"4,10,1,-;"+xid79+"\n")
	s := &sink{}
	follow(t, o, s)
	got := s.wait(t, 2)
	if got[0].Kind == heelerv1.KindXid {
		got[0], got[1] = got[1], got[0]
	}
	if got[0].Kind != heelerv1.KindRmInit || got[0].PCI != at3b || got[0].Seq == got[1].Seq {
		t.Errorf("got %+v", got[0])
	}
}
