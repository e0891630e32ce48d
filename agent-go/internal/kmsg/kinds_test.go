package kmsg

import (
	"reflect"
	"strings"
	"testing"

	"heeler.dev/schemas/go/heelerv1"
)

// story is lines of one event, as a kernel wrote them.
type story struct {
	name   string
	lines  string
	kind   heelerv1.EventKind
	pci    string
	pid    uint64
	comm   string
	detail map[string]any // those named must be so; nil must not be there
}

func tell(t *testing.T, stories []story) {
	t.Helper()
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			got := events(strings.Split(strings.TrimSpace(s.lines), "\n")...)
			if len(got) != 1 {
				for _, m := range got {
					t.Logf("%s %s %q %v", m.Kind, m.PCI, m.Text, m.Detail)
				}
				t.Fatalf("%d events, want one", len(got))
			}
			m := got[0]
			if m.Kind != s.kind || m.PCI != s.pci || m.Comm != s.comm {
				t.Errorf("kind %s, pci %q, comm %q", m.Kind, m.PCI, m.Comm)
			}
			if s.pid != 0 && (m.PID == nil || *m.PID != s.pid) {
				t.Errorf("pid %v", m.PID)
			}
			for key, value := range s.detail {
				if !reflect.DeepEqual(m.Detail[key], value) {
					t.Errorf("%s = %#v, want %#v", key, m.Detail[key], value)
				}
			}
			m.Header = heelerv1.Header{V: 1, Cluster: "c", Node: "n", Boot: "b"}
			if _, err := heelerv1.Encode(m); err != nil {
				t.Error(err)
			}
		})
	}
}

type d = map[string]any

func TestPCIeOfAllKernels(t *testing.T) {
	aer := heelerv1.KindAer
	tell(t, []story{
		{name: "3.10", kind: aer, pci: "0000:00:1d", lines: `
pcieport 0000:00:1d.0: AER: Corrected error received: id=00e8
pcieport 0000:00:1d.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e8(Receiver ID)
pcieport 0000:00:1d.0:   device [8086:a298] error status/mask=00000001/00002000
pcieport 0000:00:1d.0:    [ 0] Receiver Error         (First)`,
			detail: d{
				"severity": "corrected", "layer": "Physical Layer", "agent": "Receiver ID", "vendor": "8086", "device": "a298",
				"status": uint64(1), "mask": uint64(0x2000), "errors": []any{"Receiver Error"}, "first": "Receiver Error",
				"reporter": "0000:00:1d.0", "multiple": false,
			}},
		{name: "requester id of a device behind the port", kind: aer, pci: "0000:3b:00", lines: `
pcieport 0000:3a:00.0: AER: Uncorrected (Non-Fatal) error received: id=3b00`,
			detail: d{"severity": "nonfatal", "reporter": "0000:3a:00.0"}},
		{name: "5.15", kind: aer, pci: "0000:3b:00", lines: `
pcieport 0000:3a:00.0: AER: Multiple Uncorrected (Fatal) error received: 0000:3b:00.0
nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)
nvidia 0000:3b:00.0: AER:   device [10de:2330] error status/mask=00104000/00000000
nvidia 0000:3b:00.0: AER:    [14] CmpltTO                (First)
nvidia 0000:3b:00.0: AER:    [20] UnsupReq
nvidia 0000:3b:00.0: AER:   TLP Header: 40000001 0000000f 90028090 00000000
nvidia 0000:3b:00.0: AER:   Error of this Agent is reported first`,
			detail: d{
				"severity": "fatal", "multiple": true, "errors": []any{"CmpltTO", "UnsupReq"}, "first": "CmpltTO",
				"vendor": "10de", "device": "2330", "tlp_header": "40000001 0000000f 90028090 00000000",
			}},
		{name: "6.18", kind: aer, pci: "0000:3b:00", lines: `
pcieport 0000:3a:00.0: AER: Correctable error message received from 0000:3b:00.0
nvidia 0000:3b:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)
nvidia 0000:3b:00.0:   device [10de:2330] error status/mask=00001000/00002000
nvidia 0000:3b:00.0:    [12] Timeout`,
			detail: d{"severity": "corrected", "layer": "Data Link Layer", "errors": []any{"Timeout"}, "first": nil}},
		{name: "6.18 without details", kind: aer, pci: "0000:02:00", lines: `
pci 0000:00:01.0: AER: Correctable error message received from 0000:02:00.0 (no details found`,
			detail: d{"severity": "corrected", "layer": nil}},
		{name: "no device found", kind: aer, pci: "0000:00:1c", lines: `
pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5
pcieport 0000:00:1c.5: AER: can't find device of ID00e5`,
			detail: d{"severity": "corrected", "function": uint64(5)}},
		{name: "a device alone", kind: aer, pci: "0001:01:00", lines: `
nvidia 0001:01:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Inaccessible, (Unregistered Agent ID)`,
			detail: d{"severity": "nonfatal", "layer": "Inaccessible", "agent": "Unregistered Agent ID"}},
		{name: "CXL", kind: aer, pci: "0000:0d:00", lines: `
pcieport 0000:0d:00.0: CXL Bus Error: severity=Correctable, type=Transaction Layer, (Receiver ID)`,
			detail: d{"bus": "cxl"}},
		{name: "seen by firmware", kind: aer, pci: "0000:3b:00", lines: `
nvidia 0000:3b:00.0: AER: aer_status: 0x00001000, aer_mask: 0x00002000
nvidia 0000:3b:00.0: AER:    [12] Timeout
nvidia 0000:3b:00.0: AER: aer_layer=Data Link Layer, aer_agent=Transmitter ID`,
			detail: d{"status": uint64(0x1000), "layer": "Data Link Layer", "errors": []any{"Timeout"}, "severity": nil}},
		{name: "recovery", kind: aer, pci: "0000:3a:00", lines: `
pcieport 0000:3a:00.0: AER: device recovery failed`, detail: d{"recovery": "failed"}},
		{name: "containment, old", kind: aer, pci: "0000:00:01", lines: `
pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000
pcieport 0000:00:01.0: DPC: unmasked uncorrectable error detected`,
			detail: d{"event": "containment", "reason": "unmasked uncorrectable error", "dpc_status": uint64(0x1f01)}},
		{name: "containment, new", kind: aer, pci: "0000:02:00", lines: `
pcieport 0000:00:01.0: DPC: containment event, status:0x000d, ERR_FATAL received from 0000:02:00.0`,
			detail: d{"reason": "ERR_FATAL", "reporter": "0000:00:01.0"}},
		{name: "containment, new, without a sender", kind: aer, pci: "0000:00:01", lines: `
pcieport 0000:00:01.0: DPC: containment event, status:0x0009: unmasked uncorrectable error detected`,
			detail: d{"reason": "unmasked uncorrectable error"}},
		{name: "slot", kind: heelerv1.KindLink, pci: "0000:17:01", lines: `
pcieport 0000:17:01.0: pciehp: Slot(22): Card not present`, detail: d{"bus": "pcie", "slot": "22", "state": "card not present"}},
		{name: "slot, 4.x", kind: heelerv1.KindLink, pci: "0000:17:01", lines: `
pciehp 0000:17:01.0:pcie004: Slot(22-1): Link Down`, detail: d{"slot": "22-1", "state": "link down"}},
		{name: "slot, 3.x", kind: heelerv1.KindLink, pci: "0000:17:01", lines: `
pciehp 0000:17:01.0:pcie24: slot(16): Link Down event`, detail: d{"slot": "16", "state": "link down"}},
		{name: "slot, oldest", kind: heelerv1.KindLink, pci: "0000:17:01", lines: `
pciehp 0000:17:01.0:pcie24: Card not present on Slot(16)`, detail: d{"slot": "16", "state": "card not present"}},
		{name: "does not answer", kind: heelerv1.KindLink, pci: "0000:3b:00", lines: `
nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible`,
			detail: d{"state": "device inaccessible"}},
	})
}

func TestTwoDevicesAfterOneMessageAreTwoEvents(t *testing.T) {
	got := events(
		"pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:3b:00.0",
		"nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
		"nvidia 0000:3b:00.0:    [ 0] RxErr",
		"mlx5_core 0000:3c:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
		"mlx5_core 0000:3c:00.0:    [ 6] BadTLP",
	)
	if len(got) != 2 || got[0].PCI != at3b || got[1].PCI != "0000:3c:00" ||
		!reflect.DeepEqual(got[1].Detail["errors"], []any{"BadTLP"}) {
		t.Errorf("got %+v", got)
	}
}

func TestMemoryErrorsOfAllKernels(t *testing.T) {
	mce, edac := heelerv1.KindMce, heelerv1.KindEdac
	tell(t, []story{
		{name: "a bank", kind: mce, lines: `
mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: be00000000800400
mce: [Hardware Error]: TSC 1f2e3d4c ADDR fef1ff80 MISC 86 PPIN 1234
mce: [Hardware Error]: PROCESSOR 0:606a6 TIME 1700000000 SOCKET 1 APIC 2c microcode d000390`,
			detail: d{"cpu": uint64(12), "bank": uint64(5), "status": uint64(0xbe00000000800400), "corrected": false,
				"address": uint64(0xfef1ff80), "socket": uint64(1)}},
		{name: "a corrected one", kind: mce, lines: `
mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 13: 8c00004000010090`, detail: d{"corrected": true}},
		{name: "an exception, older", kind: mce, lines: `
[Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 3: be0000000005110a
[Hardware Error]: RIP !INEXACT! 10:<ffffffff8100a5a0> {default_idle+0x20/0x30}
[Hardware Error]: Run the above through 'mcelog --ascii'`, detail: d{"cpu": uint64(0), "bank": uint64(3), "corrected": false}},
		{name: "logged", kind: mce, lines: "mce: [Hardware Error]: Machine check events logged", detail: d{"event": "logged"}},
		{name: "logged, older", kind: mce, lines: "[Hardware Error]: Machine check events logged", detail: d{"event": "logged"}},
		{name: "AMD", kind: mce, lines: `
[Hardware Error]: Corrected error, no action required.
[Hardware Error]: CPU:2 (19:1:1) MC17_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b
[Hardware Error]: Error Addr: 0x0000000d3f1c2b40
[Hardware Error]: IPID: 0x0000009600350f00, Syndrome: 0x3f5b00010a801203
[Hardware Error]: Unified Memory Controller Ext. Error Code: 0, DRAM ECC error.
[Hardware Error]: cache level: L3/GEN, tx: GEN, mem-tx: RD`,
			detail: d{"corrected": true, "cpu": uint64(2), "bank": uint64(17), "address": uint64(0xd3f1c2b40),
				"unit": "Unified Memory Controller", "error": "DRAM ECC error."}},
		{name: "a page is given up", kind: mce, lines: "Memory failure: 0x40fa6: recovery action for dirty LRU page: Recovered",
			detail: d{"page": uint64(0x40fa6), "recovery": "recovered"}},
		{name: "a process dies of it", kind: mce, pid: 1296, comm: "mca-recover",
			lines: "Memory failure: 0x40fa6: Killing mca-recover:1296 due to hardware memory corruption"},
		{name: "firmware: memory", kind: edac, lines: `
{2}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
{2}[Hardware Error]: It has been corrected by h/w and requires no further action
{2}[Hardware Error]: event severity: corrected
{2}[Hardware Error]:  Error 0, type: corrected
{2}[Hardware Error]:  fru_text: A1
{2}[Hardware Error]:   section_type: memory error
{2}[Hardware Error]:   error_status: Storage error in DRAM memory (0x0000000000000400)
{2}[Hardware Error]:   physical_address: 0x000000089c033400
{2}[Hardware Error]:   node:0 card:3 module:0 rank:0 bank_group:0 bank_address:0 device:0 row:624 column:384
{2}[Hardware Error]:   error_type: 2, single-bit ECC
{2}[Hardware Error]:   DIMM location: CPU1 DIMM_A1`,
			detail: d{"source": uint64(4), "severity": "corrected", "corrected": true, "address": uint64(0x89c033400),
				"error": "single-bit ECC", "dimm": "CPU1 DIMM_A1"}},
		{name: "firmware: PCIe", kind: heelerv1.KindAer, pci: "0000:3b:00", lines: `
{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 5
{1}[Hardware Error]: event severity: fatal
{1}[Hardware Error]:  Error 0, type: fatal
{1}[Hardware Error]:   section_type: PCIe error
{1}[Hardware Error]:   port_type: 0, PCIe end point
{1}[Hardware Error]:   version: 3.0
{1}[Hardware Error]:   command: 0x0002, status: 0x0010
{1}[Hardware Error]:   device_id: 0000:3b:00.0
{1}[Hardware Error]:   slot: 0
{1}[Hardware Error]:   secondary_bus: 0x00
{1}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330
{1}[Hardware Error]:   class_code: 030200
{1}[Hardware Error]:   aer_uncor_status: 0x00100000, aer_uncor_mask: 0x00010000
{1}[Hardware Error]:   aer_uncor_severity: 0x000ef030
{1}[Hardware Error]:   TLP Header: 40000001 0000000f 90028090 00000000`,
			detail: d{"severity": "fatal", "corrected": false, "vendor": "10de", "device": "2330", "status": uint64(0x100000)}},
		{name: "of the boot before", kind: edac, lines: `
BERT: Error records from previous boot:
[Hardware Error]: event severity: fatal
[Hardware Error]:  Error 0, type: fatal
[Hardware Error]:   section_type: memory error
[Hardware Error]:   physical_address: 0x0000000040fa6000`, detail: d{"previous_boot": true, "address": uint64(0x40fa6000)}},
		{name: "EDAC of Intel", kind: edac, lines: "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 " +
			"(channel:1 slot:0 page:0x2ea8c7 offset:0x40 grain:32 syndrome:0x0 -  OVERFLOW err_code:0x0101:0x0090 SystemAddress:0x2ea8c7040)",
			detail: d{"controller": "MC0", "errors": uint64(1), "corrected": true, "dimm": "CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
				"error": "memory read error", "channel": uint64(1), "slot": uint64(0), "page": uint64(0x2ea8c7)}},
		{name: "EDAC of AMD", kind: edac, lines: "EDAC MC1: 3 UE on mc#1csrow#0channel#1 (csrow:0 channel:1 page:0x0 offset:0x0 grain:64)",
			detail: d{"errors": uint64(3), "corrected": false, "dimm": "mc#1csrow#0channel#1", "csrow": uint64(0)}},
		{name: "EDAC over firmware", kind: edac, lines: "EDAC MC0: 1 UE multi-symbol chipkill ECC on unknown memory " +
			"(node:0 card:3 module:0 rank:0 bank:0 page:0x89c033 offset:0x400 grain:1 - APEI location: node:0 card:3)",
			detail: d{"error": "multi-symbol chipkill ECC", "dimm": "unknown memory", "card": uint64(3)}},
		{name: "EDAC of 2.6", kind: edac, lines: `EDAC MC0: CE page 0x3f1, offset 0xb40, grain 0, syndrome 0x5a, row 2, channel 1, label "DIMM_B2": amd64_edac`,
			detail: d{"corrected": true, "errors": uint64(1), "dimm": "DIMM_B2", "row": uint64(2), "channel": uint64(1)}},
	})
}

func TestProcessesOfAllKernels(t *testing.T) {
	oom := heelerv1.KindOom
	tell(t, []story{
		{name: "6.x cgroup", kind: oom, pid: 4242, comm: "python", lines: `
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/slurm/job_77,task_memcg=/slurm/job_77/step_0,task=python,pid=4242,uid=1000
Memory cgroup out of memory: Killed process 4242 (python) total-vm:12kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:3344kB oom_score_adj:0`,
			detail: d{"memory_cgroup": true, "cgroup": "/slurm/job_77/step_0", "limit_cgroup": "/slurm/job_77", "uid": uint64(1000),
				"anon_rss_bytes": uint64(8192), "total_vm_bytes": uint64(12288)}},
		{name: "6.x global", kind: oom, pid: 9, comm: "a b", lines: `
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice,task=a b,pid=9,uid=0
Out of memory: Killed process 9 (a b) total-vm:1kB, anon-rss:1kB`, detail: d{"memory_cgroup": false, "constraint": "CONSTRAINT_NONE"}},
		{name: "4.x, and a child is killed", kind: oom, pid: 4300, comm: "worker", lines: `
Out of memory: Kill process 4242 (python) score 912 or sacrifice child
Killed process 4300 (worker) total-vm:12kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB`,
			detail: d{"memory_cgroup": false, "chosen_pid": uint64(4242), "anon_rss_bytes": uint64(8192)}},
		{name: "3.10 cgroup", kind: oom, pid: 4242, comm: "python", lines: `
Task in /slurm/uid_1000/job_77/step_0 killed as a result of limit of /slurm/uid_1000/job_77
Memory cgroup out of memory: Kill process 4242 (python) score 1000 or sacrifice child
Killed process 4242 (python), UID 1000, total-vm:12kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB`,
			detail: d{"memory_cgroup": true, "cgroup": "/slurm/uid_1000/job_77/step_0", "uid": uint64(1000)}},
		{name: "allocating task", kind: oom, pid: 7, comm: "x", lines: `
Out of memory (oom_kill_allocating_task): Killed process 7 (x) total-vm:1kB`, detail: d{"memory_cgroup": false}},
		{name: "2.6.32, number before the name", kind: oom, pid: 3284, comm: "python",
			lines: "Killed process 3284, UID 500, (python) total-vm:12kB, anon-rss:8kB, file-rss:0kB", detail: d{"uid": uint64(500)}},
		{name: "brackets in a name", kind: oom, pid: 9, comm: "a b) c",
			lines: "Out of memory: Killed process 9 (a b) c) total-vm:1kB, anon-rss:1kB, UID:0 pgtables:0kB", detail: d{"uid": uint64(0)}},
		{name: "hung task", kind: heelerv1.KindHungTask, pid: 77, comm: "pt_main_thread",
			lines: "INFO: task pt_main_thread:77 blocked for more than 122 seconds.", detail: d{"seconds": uint64(122), "io_wait": nil}},
		{name: "hung task, 6.18", kind: heelerv1.KindHungTask, pid: 1, comm: "a:b",
			lines: "INFO: task a:b:1 blocked in I/O wait for more than 122 seconds.", detail: d{"io_wait": true}},
		{name: "soft lockup, old", kind: heelerv1.KindSoftLockup, pid: 31337, comm: "qemu-kvm",
			lines: "NMI watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [qemu-kvm:31337]", detail: d{"cpu": uint64(12), "lockup": "soft"}},
		{name: "soft lockup, oldest", kind: heelerv1.KindSoftLockup, pid: 5, comm: "x",
			lines: "BUG: soft lockup - CPU#1 stuck for 67s! [x:5]", detail: d{"seconds": uint64(67)}},
		{name: "hard lockup, new", kind: heelerv1.KindSoftLockup, lines: "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 9",
			detail: d{"hard": true, "cpu": uint64(9)}},
		{name: "RCU stall", kind: heelerv1.KindSoftLockup, lines: "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
			detail: d{"lockup": "rcu_stall", "flavour": "rcu_preempt"}},
		{name: "RCU stall, old", kind: heelerv1.KindSoftLockup, lines: "INFO: rcu_sched self-detected stall on CPU { 3}  (t=60000 jiffies g=1 c=2 q=3)",
			detail: d{"lockup": "rcu_stall", "cpu": uint64(3)}},
	})
}

func TestStorageOfAllKernels(t *testing.T) {
	nvme, fs, raid := heelerv1.KindNvme, heelerv1.KindFsReadonly, heelerv1.KindRaid
	tell(t, []story{
		{name: "timeout", kind: nvme, lines: "nvme nvme2: I/O tag 12 (100c) opcode 0x1 (I/O Cmd) QID 3 timeout, aborting req_op:WRITE(1) size:4096",
			detail: d{"device": "nvme2", "event": "timeout"}},
		{name: "down", kind: nvme, lines: "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", detail: d{"event": "controller_down"}},
		{name: "gone", kind: nvme, lines: "nvme nvme0: Disabling device after reset failure: -19", detail: d{"event": "removed"}},
		{name: "no path", kind: nvme, lines: "block nvme0n1: no usable path - requeuing I/O", detail: d{"device": "nvme0n1", "event": "path_loss"}},
		{name: "no path left", kind: nvme, lines: "block nvme0n1: no available path - failing I/O", detail: d{"event": "path_loss"}},
		{name: "medium", kind: nvme, lines: "blk_update_request: critical medium error, dev nvme0n1, sector 123456 op 0x0:(READ) flags 0x0",
			detail: d{"device": "nvme0n1", "error": "medium"}},
		{name: "I/O, old", kind: nvme, lines: "print_req_error: I/O error, dev nvme0n1, sector 5", detail: d{"sector": uint64(5)}},
		{name: "command", kind: nvme, lines: "nvme0n1: Read(0x2) @ LBA 2096384, 128 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR",
			detail: d{"device": "nvme0n1", "event": "io_error"}},
		{name: "buffer", kind: nvme, lines: "Buffer I/O error on dev nvme0n1p2, logical block 17, lost async page write", detail: d{"block": uint64(17)}},
		{name: "ext4 error", kind: fs, lines: "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
			detail: d{"filesystem": "ext4", "device": "nvme0n1p2", "event": "error", "readonly": false}},
		{name: "ext4 error in", kind: fs, lines: "EXT4-fs error (device dm-0) in ext4_reserve_inode_write:5741: Journal has aborted", detail: d{"device": "dm-0"}},
		{name: "ext4 read-only", kind: fs, lines: "EXT4-fs (sda1): Remounting filesystem read-only", detail: d{"event": "readonly", "readonly": true}},
		{name: "journal", kind: fs, lines: "Aborting journal on device sda1-8.", detail: d{"device": "sda1-8", "event": "journal_aborted"}},
		{name: "xfs", kind: fs, lines: "XFS (dm-3): Corruption of in-memory data (0x8) detected at xfs_trans_cancel (fs/xfs/xfs_trans.c:1097).  Shutting down filesystem.",
			detail: d{"filesystem": "xfs", "event": "shutdown", "readonly": true}},
		{name: "xfs, new", kind: fs, lines: "XFS (dm-3): Filesystem has been shut down due to log error (0x2).", detail: d{"event": "shutdown"}},
		{name: "xfs, old", kind: fs, lines: "XFS (sdb1): xfs_do_force_shutdown(0x2) called from line 1161 of file fs/xfs/xfs_log.c.", detail: d{"event": "shutdown"}},
		{name: "btrfs", kind: fs, lines: "BTRFS info (device sda1 state EA): forced readonly", detail: d{"device": "sda1", "event": "readonly"}},
		{name: "btrfs, old", kind: fs, lines: "BTRFS: error (device sda1) in btrfs_commit_transaction:2377: errno=-5 IO failure", detail: d{"event": "error"}},
		{name: "fat", kind: fs, lines: "FAT-fs (sdb1): Filesystem has been set read-only", detail: d{"event": "readonly"}},
		{name: "array member", kind: raid, lines: "md/raid1:md0: Disk failure on sda1, disabling device.", detail: d{"device": "md0", "member": "sda1", "event": "member_failed", "level": "raid1"}},
		{name: "array goes on", kind: raid, lines: "md/raid:md127: Operation continuing on 2 devices.", detail: d{"members_left": uint64(2), "event": "degraded"}},
		{name: "array failed", kind: raid, lines: "md/raid:md0: Cannot continue operation (2/5 failed).", detail: d{"event": "failed"}},
		{name: "array controller", kind: raid, pci: "0000:18:00", lines: "megaraid_sas 0000:18:00.0: 2345 (700000000s/0x0001/FATAL) - VD 00/0 is now DEGRADED",
			detail: d{"event": "degraded"}},
	})
}

func TestNetworkOfAllKernels(t *testing.T) {
	mlx5, link := heelerv1.KindMlx5, heelerv1.KindLink
	const at5e = "0000:5e:00"
	tell(t, []story{
		{name: "module, old", kind: mlx5, pci: at5e, lines: "mlx5_core 0000:5e:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature",
			detail: d{"about": "module", "module": uint64(0), "event": "Cable error, High Temperature"}},
		{name: "unplugged", kind: mlx5, pci: at5e, lines: "mlx5_core 0000:5e:00.1: Port module event: module 1, Cable unplugged",
			detail: d{"about": "module", "event": "Cable unplugged", "function": uint64(1)}},
		{name: "power", kind: mlx5, pci: at5e, lines: "mlx5_core 0000:5e:00.0: mlx5_pcie_event:326:(pid 165): Detected insufficient power on the PCIe slot (27W).",
			detail: d{"about": "power", "insufficient": true, "power_w": uint64(27)}},
		{name: "power again", kind: mlx5, pci: at5e, lines: "mlx5_core 0000:5e:00.0: PCIe slot advertised sufficient power (75W).", detail: d{"insufficient": false}},
		{name: "temperature", kind: mlx5, pci: at5e, lines: "mlx5_core 0000:5e:00.0: temp_warn:171:(pid 0): High temperature on sensors with bit set 0 1", detail: d{"about": "temperature"}},
		{name: "health, old", kind: mlx5, pci: at5e, lines: `
mlx5_core 0000:5e:00.0: poll_health:895:(pid 0): device's health compromised - reached miss count
mlx5_core 0000:5e:00.0: print_health_info:424:(pid 0): assert_var[0] 0x00000003
mlx5_core 0000:5e:00.0: print_health_info:427:(pid 0): assert_exit_ptr 0x20b3f1c4
mlx5_core 0000:5e:00.0: print_health_info:435:(pid 0): synd 0x1: firmware internal error
mlx5_core 0000:5e:00.0: print_health_info:436:(pid 0): ext_synd 0x035e`,
			detail: d{"about": "health", "syndrome": uint64(1), "syndrome_text": "firmware internal error", "ext_synd": "0x035e", "assert_exit_ptr": "0x20b3f1c4"}},
		{name: "health, new", kind: mlx5, pci: at5e, lines: `
mlx5_core 0000:5e:00.0: print_health_info:431:(pid 0): Health issue observed, High temperature, severity(2) CRITICAL:
mlx5_core 0000:5e:00.0: print_health_info:435:(pid 0): synd 0x10: High temperature`,
			detail: d{"about": "health", "issue": "High temperature", "severity": uint64(2), "syndrome": uint64(16)}},
		{name: "command", kind: mlx5, pci: "0000:d2:00", lines: "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x305684), err(-22)",
			detail: d{"about": "command", "command": "ACCESS_REG", "opcode": uint64(0x805), "status": "bad operation", "syndrome": uint64(0x305684), "err": "-22"}},
		{name: "command hangs", kind: mlx5, pci: "0000:03:00", lines: "mlx5_core 0000:03:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
			detail: d{"about": "command", "command": "ENABLE_HCA"}},
		{name: "no address", kind: mlx5, lines: "mlx5_core: INFO: synd 0x8: unrecoverable hardware error.", detail: d{"syndrome": uint64(8), "syndrome_text": "unrecoverable hardware error"}},
		{name: "transmit queue", kind: mlx5, lines: "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out 5000 ms", detail: d{"about": "tx_timeout", "queue": uint64(3)}},
		{name: "link", kind: link, pci: at5e, lines: "mlx5_core 0000:5e:00.0 ens1f0np0: Link down", detail: d{"netdev": "ens1f0np0", "state": "down"}},
		{name: "link of an interface that goes", kind: link, pci: at5e, lines: "mlx5_core 0000:5e:00.0 ib0 (unregistering): Link down", detail: d{"netdev": "ib0"}},
		{name: "igb", kind: link, pci: "0000:01:00", lines: "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down", detail: d{"netdev": "eno1", "state": "down"}},
		{name: "ixgbe", kind: link, pci: "0000:01:00", lines: "ixgbe 0000:01:00.0 eno1: NIC Link is Up 10 Gbps, Flow Control: None", detail: d{"state": "up"}},
		{name: "no device", kind: link, lines: "ib0: link down", detail: d{"netdev": "ib0", "state": "down"}},
		{name: "bond", kind: link, lines: "bond0: (slave ens1f0): link status definitely down, disabling slave", detail: d{"bond": "bond0", "netdev": "ens1f0", "state": "down", "definite": true}},
		{name: "bond, old", kind: link, lines: "bonding: bond0: link status definitely down for interface eth1, disabling it", detail: d{"bond": "bond0", "netdev": "eth1"}},
		{name: "bond, in time", kind: link, lines: "bond-wan: (slave veth2): link status down for interface, disabling it in 200 ms", detail: d{"definite": false, "netdev": "veth2"}},
		{name: "bond without a way", kind: link, lines: "bond0: now running without any active interface!", detail: d{"bond": "bond0", "state": "down"}},
		{name: "carrier", kind: link, lines: "ib0: Lost carrier", detail: d{"netdev": "ib0", "state": "down", "carrier": "lost"}},
	})
}

func TestTheDriverApartFromXids(t *testing.T) {
	rm := heelerv1.KindRmInit
	tell(t, []story{
		{name: "init", kind: rm, pci: at3b, lines: "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0xffff:2351)", detail: d{"event": "init_failed", "status": "0x62:0xffff:2351"}},
		{name: "init, old", kind: rm, lines: "NVRM: RmInitAdapter failed! (0x27:0x38:1193)", detail: d{"status": "0x27:0x38:1193"}},
		{name: "init, second line", kind: rm, pci: at3b, lines: "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 3", detail: d{"minor": uint64(3)}},
		{name: "init, oldest", kind: rm, lines: "NVRM: rm_init_adapter(0) failed", detail: d{"event": "init_failed"}},
		{name: "firmware", kind: rm, lines: "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM"},
		{name: "probe", kind: rm, lines: "NVRM: The NVIDIA probe routine failed for 1 device(s).", detail: d{"event": "probe_failed", "devices": uint64(1)}},
		{name: "in use", kind: rm, pci: at3b, lines: "NVRM: GPU 0000:3b:00.0 is already in use", detail: d{"event": "in_use"}},
		{name: "bound", kind: rm, pci: at3b, lines: "NVRM: GPU 0000:3b:00.0 is already bound to nouveau.", detail: d{"event": "in_use"}},
		{name: "mismatch", kind: rm, lines: `
NVRM: API mismatch: the client has the version 550.54.14, but
NVRM: this kernel module has the version 545.23.08.  Please
NVRM: make sure that this kernel module and all NVIDIA driver
NVRM: components have the same version.`, detail: d{"event": "api_mismatch", "client_version": "550.54.14", "module_version": "545.23.08"}},
		{name: "mismatch as dmesg prints it", kind: rm, lines: `
[ 1865.855970] NVRM: API mismatch: the client has the version 550.54.14, but
               NVRM: this kernel module has the version 545.23.08.  Please
               NVRM: make sure that this kernel module and all NVIDIA driver
               NVRM: components have the same version.`, detail: d{"module_version": "545.23.08"}},
		{name: "mismatch as the kernel gives it", kind: rm, lines: `
3,77,1865855970,-;NVRM: API mismatch: the client has the version 550.54.14, but\x0aNVRM: this kernel module has the version 545.23.08.  Please\x0aNVRM: make sure that this kernel module and all NVIDIA driver\x0aNVRM: components have the same version.`,
			detail: d{"client_version": "550.54.14", "module_version": "545.23.08"}},
		{name: "mismatch, 595", kind: rm, comm: "gnome-shell", lines: `
NVRM: API mismatch: the client 'gnome-shell' has the version 595.58.03,
NVRM: but this kernel module has the version 595.91.07.  Please
NVRM: make sure that this kernel module and all NVIDIA driver
NVRM: components have the same version.`, detail: d{"client_version": "595.58.03", "module_version": "595.91.07"}},
		{name: "mismatch, with a process", kind: rm, comm: "nvidia-smi", pid: 1234, lines: `
NVRM: API mismatch: the client 'nvidia-smi' (pid 1234)
NVRM: has the version 550.54.14, but this kernel module has
NVRM: the version 545.23.08.  Please make sure that this
NVRM: kernel module and all NVIDIA driver components
NVRM: have the same version.`, detail: d{"client_version": "550.54.14", "module_version": "545.23.08"}},
		{name: "nvlink", kind: heelerv1.KindNvlink, lines: "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!",
			detail: d{"function": "knvlinkDiscoverPostRxDetLinks_GH100"}},
		{name: "nvlink, newer", kind: heelerv1.KindNvlink, lines: "NVRM: GPU3 knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", detail: d{"gpu_instance": uint64(3)}},
		{name: "who is who", kind: heelerv1.KindGpuUUID, pci: at3b, lines: `
NVRM: GPU at PCI:0000:3b:00: GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000
NVRM: GPU Board Serial Number: 1654922000123`, detail: d{"board_serial": "1654922000123"}},
		{name: "lost in one line", kind: heelerv1.KindGpuLost, pci: "0000:05:00",
			lines: "NVRM: The NVIDIA GPU 0000:05:00.0 installed in this system has fallen off the bus and is not responding to commands."},
		{name: "lost in two lines", kind: heelerv1.KindGpuLost, pci: "0000:01:00", lines: `
NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1e07) installed in this
NVRM: system has fallen off the bus and is not responding to commands.`, detail: d{"vendor": "10de", "device": "1e07"}},
		{name: "lost as the kernel gives it", kind: heelerv1.KindGpuLost, pci: "0000:b3:00", lines: `
3,9,1,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\x0aNVRM: fallen off the bus and is not responding to commands.`,
			detail: d{"device": "26b5"}},
		{name: "lost as dmesg prints it", kind: heelerv1.KindGpuLost, pci: "0000:b3:00", lines: `
[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.`},
		{name: "thermal", kind: heelerv1.KindThermal, lines: "CPU7: Core temperature is above threshold, cpu clock is throttled (total events = 219)",
			detail: d{"cpu": uint64(7), "level": "core", "throttled": true, "total_events": uint64(219)}},
		{name: "thermal, old", kind: heelerv1.KindThermal, lines: "mce: CPU7: Package temperature above threshold, cpu clock throttled (total events = 2)", detail: d{"level": "package"}},
		{name: "thermal over", kind: heelerv1.KindThermal, lines: "CPU7: Core temperature/speed normal", detail: d{"throttled": false}},
		{name: "oldest XID", kind: heelerv1.KindXid, pci: "0000:01:00", lines: "NVRM: Xid (0001:00): 6, PE0000 0438 ff7f6a59 0000f478 00000000 fff6e7dc"},
	})
}
