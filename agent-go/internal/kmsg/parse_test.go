package kmsg

import (
	"reflect"
	"strings"
	"testing"

	"heeler.dev/schemas/go/heelerv1"
)

func u(n uint64) *uint64 { return &n }

func parse(t *testing.T, text string) Fact {
	t.Helper()
	f, ok := NewParser().Parse(text)
	if !ok {
		t.Fatalf("not recognised: %s", text)
	}
	return f
}

// want is what matters of a fact in a table.
type want struct {
	kind   heelerv1.EventKind
	code   uint64
	pci    string
	gi, ci *uint64
	pid    *uint64
	comm   string
	detail map[string]any // those named must be so
}

func check(t *testing.T, line string, w want) {
	t.Helper()
	f := parse(t, line)
	if f.Kind != w.kind || f.PCI != w.pci || f.Comm != w.comm {
		t.Errorf("%s\n got kind %s pci %q comm %q", line, f.Kind, f.PCI, f.Comm)
	}
	if w.code != 0 && (f.Code == nil || *f.Code != w.code) {
		t.Errorf("%s\n got code %v, want %d", line, f.Code, w.code)
	}
	for name, pair := range map[string][2]*uint64{"gi": {f.GI, w.gi}, "ci": {f.CI, w.ci}, "pid": {f.PID, w.pid}} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s\n got another %s", line, name)
		}
	}
	for key, value := range w.detail {
		if !reflect.DeepEqual(f.Detail[key], value) {
			t.Errorf("%s\n got %s = %#v, want %#v", line, key, f.Detail[key], value)
		}
	}
}

const at3b = "0000:3b:00"

func TestXidOfAllDriverGenerations(t *testing.T) {
	xid := heelerv1.KindXid
	for line, w := range map[string]want{
		"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.":                                                                                {kind: xid, code: 79, pci: at3b},
		"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.":                                               {kind: xid, code: 79, pci: at3b},
		"NVRM: Xid (PCI:0000:3b:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus.":                                                 {kind: xid, code: 79, pci: at3b},
		"NVRM: Xid (0000:3b:00): 62, 1a2b(3c4d) 00000000":                                                                                            {kind: xid, code: 62, pci: at3b},
		"NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000011, engmask 00000201, intr 20000000":                                                               {kind: xid, code: 31, pci: at3b, detail: map[string]any{"channel": "00000011"}},
		"NVRM: GPU0 Xid (PCI:0000:3b:00): 8, Channel 00000001":                                                                                       {kind: xid, code: 8, pci: at3b},
		"NVRM: Xid  (PCI:0000:3b:00):  31,  pid=5, name=x, Ch 00000010":                                                                              {kind: xid, code: 31, pci: at3b, pid: u(5), comm: "x"},
		"NVRM: Xid (PCI:0000:3b:00): 43, pid=4294967295, name=x, Ch 00000008":                                                                        {kind: xid, code: 43, pci: at3b, comm: "x"},
		"NVRM: Xid (PCI:0000:3b:00): 45":                                                                                                             {kind: xid, code: 45, pci: at3b},
		"NVRM: Xid (PCI:0000:3B:00.0): 43, pid=7, name=a, Ch 00000008":                                                                               {kind: xid, code: 43, pci: at3b, pid: u(7), comm: "a"},
		"NVRM: Xid (PCI:00010000:01:00.0): 95, pid=7, name=a, Uncontained: SM (0x1). RST: Yes, D-RST: No":                                            {kind: xid, code: 95, pci: "10000:01:00", pid: u(7), comm: "a", detail: map[string]any{"reset": true, "drain_reset": false}},
		"NVRM: Xid (PCI:0000:3b:00 GPU-I:02 GPU-CI:01): 13, pid=9, name=b, Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range Address": {kind: xid, code: 13, pci: at3b, gi: u(2), ci: u(1), pid: u(9), comm: "b", detail: map[string]any{"gpc": uint64(3), "tpc": uint64(1), "sm": uint64(0)}},
		"NVRM: Xid (PCI:0000:3b:00 GPU-I:07): 94, pid=9, name=b, Contained: L2 (0x0,0x0). RST: No, D-RST: No":                                        {kind: xid, code: 94, pci: at3b, gi: u(7), pid: u(9), comm: "b"},
		"NVRM: Xid (PCI:0000:31:00): 94, pid=1, name=x, text 13":                                                                                     {kind: xid, code: 94, pci: "0000:31:00", pid: u(1), comm: "x"},
		"NVRM: Xid (PCI:0000:3b:00): 45, pid=8, name=python3, Ch 00000010, errorString CTX SWITCH TIMEOUT, Info 0x4c00c caused by previous Xid 109":  {kind: xid, code: 45, pci: at3b, pid: u(8), comm: "python3", detail: map[string]any{"caused_by": uint64(109)}},
	} {
		check(t, line, w)
	}
}

func TestAProcessNameCannotForgeAnything(t *testing.T) {
	f := parse(t, "NVRM: Xid (PCI:0000:3b:00): 43, pid=991, name=nvc:[a, b] v2, Ch 00000008")
	if *f.Code != 43 || *f.PID != 991 || f.PCI != at3b || !strings.HasPrefix(f.Comm, "nvc:[a") {
		t.Errorf("got %+v", f)
	}
	if f.Comm != "nvc:[a, b] v2" || f.Text != "Ch 00000008" {
		t.Errorf("name %q, text %q", f.Comm, f.Text)
	}
	f = parse(t, "NVRM: Xid (PCI:0000:3b:00): 13, pid=5, name=x): 79, y, Graphics Exception: ESR 0x505730=0x9")
	if *f.Code != 13 || f.Comm != "x): 79, y" {
		t.Errorf("code %d, name %q", *f.Code, f.Comm)
	}
	if esr := f.Detail["esr"]; !reflect.DeepEqual(esr, map[string]any{"0x505730": uint64(9)}) {
		t.Errorf("registers %v", esr)
	}
	for _, forged := range []string{
		"oom_reaper: reaped process 5 (NVRM: Xid (PCI:0000:3b:00): 79, x)",
		"audit: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
		" NVRM: Xid (PCI:0000:3b:00): 79, x",
		"NVRM: Xid (PCI:0000:3b:00): 79x, y",
		"NVRM: Xid (PCI:0000:3b:zz): 79, y",
		"NVRM: Xid (PCI:0000:3b:00): , y",
	} {
		if f, ok := NewParser().Parse(forged); ok && f.Kind == heelerv1.KindXid {
			t.Errorf("taken for an XID: %s", forged)
		}
	}
}

func TestXidTextsWithDetail(t *testing.T) {
	xid := heelerv1.KindXid
	for line, w := range map[string]want{
		"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)":                                                                                            {kind: xid, code: 154, pci: at3b, detail: map[string]any{"from": uint64(0), "to": uint64(2), "to_name": "Node Reboot Required"}},
		"NVRM: Xid (PCI:0000:3b:00): 154, pid=3, name=a, GPU recovery action changed from 0x4 (PF FLR) to 0x0 (None)":                                                                                           {kind: xid, code: 154, pci: at3b, pid: u(3), comm: "a", detail: map[string]any{"from": uint64(4), "to": uint64(0)}},
		"NVRM: Xid (PCI:0000:3b:00): 31, pid=5, name=p, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_3 faulted @ 0x7f32_4a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ": {kind: xid, code: 31, pci: at3b, pid: u(5), comm: "p", detail: map[string]any{"engine": "GRAPHICS", "client": "GPC1 GPCCLIENT_T1_3", "gpc": uint64(1), "address": "0x7f32_4a000000", "fault": "FAULT_PDE", "access": "ACCESS_TYPE_VIRT_READ"}},
		"NVRM: Xid (PCI:0000:3b:00): 31, pid=5, name=p, Ch 00000010, intr 00000000. MMU Fault: ENGINE CE0 HUBCLIENT_CE1 faulted @ 0x7f. Fault is of type FAULT_PTE":                                             {kind: xid, code: 31, pci: at3b, pid: u(5), comm: "p", detail: map[string]any{"engine": "CE0", "client": "HUBCLIENT_CE1", "fault": "FAULT_PTE"}},
		"NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 7(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)":                                                        {kind: xid, code: 74, pci: at3b, detail: map[string]any{"fatal": true, "link": uint64(7), "registers": []any{uint64(0x10000), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0)}}},
		"NVRM: Xid (PCI:0000:3b:00): 119, pid=5, name=p, Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).":                                   {kind: xid, code: 119, pci: at3b, pid: u(5), comm: "p", detail: map[string]any{"timeout_s": uint64(6), "function": uint64(76), "function_name": "GSP_RM_CONTROL"}},
		"NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]":                                                                                                                   {kind: xid, code: 149, pci: at3b, detail: map[string]any{"unit": "NETIR_LINK_EVT", "fatal": true, "injected": true, "link": uint64(1), "xc": uint64(1)}},
		"NVRM: Xid (PCI:0000:3b:00): 145, RLW_X Nonfatal XC1 i0 Link 17 (0x01020304 0x00000004 0x0)":                                                                                                            {kind: xid, code: 145, pci: at3b, detail: map[string]any{"unit": "RLW_X", "fatal": false, "injected": false, "link": uint64(17), "xc": uint64(1)}},
		"NVRM: Xid (PCI:0000:3b:00): 149, NETIR  Fatal   XC0 i1 Link -1 (0x0 0x0)":                                                                                                                              {kind: xid, code: 149, pci: at3b, detail: map[string]any{"unit": "NETIR", "fatal": true, "injected": true, "link": nil}},
		"NVRM: Xid (PCI:0000:3b:00): 144, pid=12, name=x, SAW_MVB Link Fatal XC0 i0 Link 03 (0x1, 0x2)":                                                                                                         {kind: xid, code: 144, pci: at3b, pid: u(12), comm: "x", detail: map[string]any{"unit": "SAW_MVB", "fatal": true, "link": uint64(3), "registers": []any{uint64(1), uint64(2)}}},
		"NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, DBE (double bit error) ECC Error":                                                                                                                       {kind: xid, code: 48, pci: at3b, pid: u(1), comm: "x"},
		"NVRM: Xid (PCI:0000:3b:00): 63, pid=1, name=x, Row Remapper: New row marked for remapping, reset gpu to activate.":                                                                                     {kind: xid, code: 63, pci: at3b, pid: u(1), comm: "x"},
		// A malformed 154 is still one, only without numbers.
		"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x (": {kind: xid, code: 154, pci: at3b, detail: map[string]any{"to": nil}},
	} {
		check(t, line, w)
	}
}

func TestTheDriverNamesItsGPUs(t *testing.T) {
	f := parse(t, "NVRM: GPU at PCI:0000:3b:00: GPU-5D1A0000-77c0-4e1b-9f20-a1b2c3d40000")
	if f.Kind != heelerv1.KindGpuUUID || f.PCI != at3b || f.UUID != "GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000" {
		t.Errorf("got %+v", f)
	}
}

func TestLostWithoutXid(t *testing.T) {
	for _, line := range []string{
		"NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
		"NVRM: GPU at PCI:0000:b3:00: GPU has fallen off the bus.",
	} {
		check(t, line, want{kind: heelerv1.KindGpuLost, pci: "0000:b3:00"})
	}
}

func TestOtherKinds(t *testing.T) {
	for line, w := range map[string]want{
		"NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0xffff:2351)":                                                   {kind: heelerv1.KindRmInit, pci: at3b},
		"NVRM: rm_init_adapter failed, device minor number 3":                                                                {kind: heelerv1.KindRmInit},
		"NVRM: The NVIDIA probe routine failed for 1 device(s).":                                                             {kind: heelerv1.KindRmInit},
		"nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping":                               {kind: heelerv1.KindPeermem},
		"pcieport 0000:17:01.0: AER: Corrected error received: 0000:3b:00.0":                                                 {kind: heelerv1.KindAer, pci: at3b, detail: map[string]any{"severity": "corrected", "reporter": "0000:17:01.0", "multiple": false}},
		"pcieport 0000:17:01.0: AER: Multiple Uncorrected (Fatal) error received: 0000:3b:00.0":                              {kind: heelerv1.KindAer, pci: at3b, detail: map[string]any{"severity": "fatal", "multiple": true}},
		"pcieport 0000:17:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:3b:00.0":                     {},
		"nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)":                        {kind: heelerv1.KindAer, pci: at3b, detail: map[string]any{"severity": "corrected", "layer": "Physical Layer", "agent": "Receiver ID"}},
		"nvidia 0000:3b:00.1: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)": {kind: heelerv1.KindAer, pci: at3b, detail: map[string]any{"severity": "nonfatal", "function": uint64(1)}},
		"pcieport 0000:17:01.0: pciehp: Slot(22): Link Down":                                                                 {kind: heelerv1.KindLink, pci: "0000:17:01", detail: map[string]any{"bus": "pcie", "slot": "22", "state": "link down"}},
		"mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: be00000000800400":                                           {kind: heelerv1.KindMce, detail: map[string]any{"cpu": uint64(12), "bank": uint64(5), "status": uint64(0xbe00000000800400)}},
		"EDAC MC0: 2 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)":                              {kind: heelerv1.KindEdac, detail: map[string]any{"controller": "MC0", "errors": uint64(2), "corrected": true}},
		"INFO: task pt_main_thread:4242 blocked for more than 120 seconds.":                                                  {kind: heelerv1.KindHungTask, pid: u(4242), comm: "pt_main_thread", detail: map[string]any{"seconds": uint64(120)}},
		"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:77]":                                                      {kind: heelerv1.KindSoftLockup, pid: u(77), comm: "python", detail: map[string]any{"cpu": uint64(3), "hard": false}},
		"watchdog: Watchdog detected hard LOCKUP on cpu 9":                                                                   {kind: heelerv1.KindSoftLockup, detail: map[string]any{"cpu": uint64(9), "hard": true}},
		"nvme nvme2: I/O 12 QID 3 timeout, aborting":                                                                         {kind: heelerv1.KindNvme, detail: map[string]any{"device": "nvme2"}},
		"critical medium error, dev nvme0n1, sector 123456 op 0x0:(READ)":                                                    {kind: heelerv1.KindNvme, detail: map[string]any{"device": "nvme0n1", "sector": uint64(123456)}},
		"EXT4-fs (nvme0n1p2): Remounting filesystem read-only":                                                               {kind: heelerv1.KindFsReadonly, detail: map[string]any{"device": "nvme0n1p2"}},
		"XFS (dm-3): Log I/O Error Detected. Shutting down filesystem":                                                       {kind: heelerv1.KindFsReadonly, detail: map[string]any{"device": "dm-3"}},
		"mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Power budget exceeded":                     {kind: heelerv1.KindMlx5, pci: "0000:5e:00", detail: map[string]any{"module": uint64(0), "event": "Cable error, Power budget exceeded"}},
		"mlx5_core 0000:5e:00.0: poll_health:895:(pid 0): device's health compromised - reached miss count":                  {kind: heelerv1.KindMlx5, pci: "0000:5e:00"},
		"mlx5_core 0000:5e:00.0 ib0: Link down":                                                                              {kind: heelerv1.KindLink, pci: "0000:5e:00", detail: map[string]any{"netdev": "ib0", "state": "down"}},
		"mlx5_core 0000:5e:00.0 ens1f0np0: Link up":                                                                          {kind: heelerv1.KindLink, pci: "0000:5e:00", detail: map[string]any{"netdev": "ens1f0np0", "state": "up"}},
		"bnxt_en 0000:c1:00.0 eth0: NIC Link is Down":                                                                        {kind: heelerv1.KindLink, pci: "0000:c1:00", detail: map[string]any{"netdev": "eth0", "state": "down"}},
	} {
		if w.kind == "" {
			continue
		}
		check(t, line, w)
	}
}

func TestOrdinaryLinesMeanNothing(t *testing.T) {
	for _, line := range []string{
		"", "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05", "usb 1-1: new high-speed USB device",
		"IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready", "mlx5_core 0000:5e:00.0: firmware version: 28.39.1002",
		"EXT4-fs (sda1): mounted filesystem with ordered data mode",
		"EXT4-fs (sda1): re-mounted 5f1e r/w. Quota mode: none.", "XFS (dm-3): Mounting V5 Filesystem", "md: md0 stopped.",
		"BTRFS info (device sda1): disk space caching is enabled", "nvidia-nvlink: Nvlink Core is being initialized, major device number 236",
		"pcieport 0000:00:1c.0: AER: enabled with IRQ 122", "pcieport 0000:00:01.0: pciehp: Slot #22 AttnBtn- PwrCtrl- MRL- HotPlug+ Surprise+",
		"pcieport 0000:00:01.0: DPC: enabled with IRQ 45", "nvidia 0000:3b:00.0: enabling device (0140 -> 0142)",
		"mlx5_core 0000:5e:00.0: PCIe slot power capability was not advertised.", "mlx5_core 0000:5e:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
		"EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0 (INTERRUPT)",
		"EDAC skx MC0: HANDLING MCE MEMORY ERROR", "kauditd_printk_skb: 12 callbacks suppressed", "printk: systemd: 12 output lines suppressed due to ratelimiting",
		"CPU0: Thermal monitoring handled by SMI", "CPU: 3 PID: 0 Comm: swapper/3 Tainted: G            E      6.0.0", "{", "{1}", "BERT: Boot Error Record Table support is disabled",
		"rcu: Hierarchical RCU implementation.", "watchdog: Delayed init of the lockup detector failed: -19", "bond0: (slave eth0): Enslaving as a backup interface with an up link",
		"NVRM: loading failed", "hid-generic 0003:0557:2419.0001: input,hidraw0: USB HID v1.00 Keyboard [HID 0557:2419] on usb-0000:00:14.0-1/input0",
		"nvme nvme0: 8/0/0 default/read/poll queues", "mce: CPU0: Thermal monitoring enabled (TM1)",
	} {
		if f, ok := NewParser().Parse(line); ok {
			t.Errorf("%q is taken for %s", line, f.Kind)
		}
	}
}
