package dcgm

import (
	"reflect"
	"testing"
)

const listing = `2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: Tesla V100-PCIE-16GB                                           |
|        | PCI Bus ID: 00000000:60:00.0                                         |
|        | Device UUID: GPU-ef97eb30-627e-f4cd-11b2-37b04ef508ba                |
+--------+----------------------------------------------------------------------+
| 3      | Name: Tesla V100-PCIE-16GB                                           |
|        | PCI Bus ID: 00000000:61:00.0                                         |
|        | Device UUID: GPU-ef97eb30-627e-f4cd-11b2-37b04ef508bb                |
+--------+----------------------------------------------------------------------+
2 NvSwitches found.
+-----------+
| Switch ID |
+-----------+
| 8         |
| 11        |
+-----------+
0 CPUs found.
`

func TestDiscoveryNumbersGPUsAndSwitches(t *testing.T) {
	n, err := parseDiscovery(listing)
	want := map[uint64]string{
		0: "GPU-ef97eb30-627e-f4cd-11b2-37b04ef508ba", 3: "GPU-ef97eb30-627e-f4cd-11b2-37b04ef508bb",
	}
	if err != nil || !reflect.DeepEqual(n.gpus, want) || !reflect.DeepEqual(n.switches, []uint64{8, 11}) {
		t.Errorf("got %+v, %v", n, err)
	}
}

func TestHalfADiscoveryIsNone(t *testing.T) {
	for _, text := range []string{"", "Error: Unable to connect", listing[:400], "1 GPU found.\n| x | y |\n"} {
		if n, err := parseDiscovery(text); err == nil {
			t.Errorf("%.30q gave %+v", text, n)
		}
	}
}

func TestAGPUThatDCGMCannotAskIsLeftOut(t *testing.T) {
	n, err := parseDiscovery("1 GPU found.\n| 0      | Error: Cannot get device attributes for GPU.    |\n0 NvSwitches found.\n")
	if err != nil || len(n.gpus) != 0 {
		t.Errorf("got %+v, %v", n, err)
	}
}

func TestInstancesBelowTheirGPUs(t *testing.T) {
	got := parseInstances(`+-------------------+--------------------------------------------------------------------+
| Instance Hierarchy                                                                     |
+===================+====================================================================+
| GPU 0             | GPU GPU-5fd15f35-e148-2992-4ecb-9825e534f253 (EntityID: 0)         |
| -> I 0/1          | GPU Instance (EntityID: 3)                                         |
|    -> CI 0/1/0    | Compute Instance (EntityID: 3)                                     |
| -> I 0/13         | GPU Instance (EntityID: 0)                                         |
+-------------------+--------------------------------------------------------------------+
`)
	uuid := "GPU-5fd15f35-e148-2992-4ecb-9825e534f253"
	if want := (map[uint64]instance{3: {uuid, 1}, 0: {uuid, 13}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestLinksOfSwitches(t *testing.T) {
	got := parseLinks(`GPUs:
    gpuId 0:
        U U U U
NvSwitches:
    physicalId 8:
        U D _ X
    physicalId 11:
        _ _

Key: Up=U, Down=D, Disabled=X, Not Supported=_
`)
	if want := []switchLink{{8, 0}, {8, 1}, {8, 3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if raw := (switchLink{1, 5}).raw(); raw != 66819 {
		t.Errorf("the number of a link is %d", raw)
	}
}

func FuzzDiscovery(f *testing.F) {
	f.Add(listing)
	f.Add("1 GPU found.\n| 0 | Device UUID: GPU-a |\n")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseDiscovery(text)
		if err != nil && (n.gpus != nil || n.switches != nil) {
			t.Fatalf("half a result: %+v, %v", n, err)
		}
		for id, uuid := range n.gpus {
			if len(uuid) <= 4 {
				t.Fatalf("GPU %d has the UUID %q", id, uuid)
			}
		}
		_, _ = parseInstances(text), parseLinks(text)
	})
}
