package kmsg

import "testing"

// What a node's log holds most of the time.
var noise = []string{
	"6,1,1,-;audit: type=1400 audit(1700000000.123:456): apparmor=\"ALLOWED\" operation=\"open\" profile=\"x\" pid=1 comm=\"y\"",
	"6,2,2,-;IPv6: ADDRCONF(NETDEV_CHANGE): veth1234: link becomes ready",
	"6,3,3,-;nvidia 0000:3b:00.0: enabling device (0140 -> 0142)",
	"6,4,4,-;EXT4-fs (sda1): mounted filesystem with ordered data mode. Quota mode: none.",
	"6,5,5,-;docker0: port 1(veth1234) entered blocking state",
	"30,6,6,-;systemd[1]: Started Session 12 of user root.",
	"6,7,7,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
	"6,8,8,-;usb 1-1: new high-speed USB device number 2 using xhci_hcd",
}

func BenchmarkNoise(b *testing.B) {
	p := NewParser()
	b.ReportAllocs()
	for i := range b.N {
		rec, err := ParseRecord(noise[i%len(noise)])
		if err != nil {
			b.Fatal(err)
		}
		if rec.Kernel() {
			p.record(&rec)
		}
	}
}
