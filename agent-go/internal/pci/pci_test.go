package pci

import "testing"

func TestAllSpellings(t *testing.T) {
	for in, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00", "0000:3b:00.0": "0000:3b:00", "PCI:0000:3b:00": "0000:3b:00",
		"0000:3B:00": "0000:3b:00", "3b:00.0": "0000:3b:00", "00010000:01:00.0": "10000:01:00",
		"10000:01:00": "10000:01:00", "0000:00:1f.7": "0000:00:1f",
	} {
		if got, ok := Normalise(in); !ok || got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	for _, bad := range []string{"", "3b", "0000:3b:00.8", "0000:3b:20.0", "x:3b:00", "0:3b:00", "000000000:3b:00", "0000:3b:00.", "a:b:c:d"} {
		if got, ok := Normalise(bad); ok {
			t.Errorf("%q became %q", bad, got)
		}
	}
	if _, function, _ := Split("0000:5e:00.1"); function != 1 {
		t.Errorf("function %d", function)
	}
}

// FuzzSplit: whatever is written, an address is in the one form, and stays as it is when read again.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"PCI:0000:3b:00", "00010000:01:00.0", "3b:00.7", "0000:3b:20.0", ":::", "0000:3b:00."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		address, function, ok := Split(s)
		if !ok {
			return
		}
		if again, same := Normalise(address); !same || again != address || function > 7 {
			t.Errorf("%q became %q, then %q", s, address, again)
		}
	})
}
