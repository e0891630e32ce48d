package bus

import (
	"bytes"
	"testing"
)

// FuzzDecodeEnvelope reads anything as an event of the spool: what is taken can be written again, and says the same.
func FuzzDecodeEnvelope(f *testing.F) {
	whole := EncodeEnvelope("heeler.v1.c.kernel.event.n", "KernelEvent/1", "KernelEvent.c.n.b.7", []byte{0x80})
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{0x94, 0xdb, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x95, 0xa0, 0xa0, 0xa0, 0xc4, 0x00, 0x00})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEnvelope(data)
		if err != nil {
			return
		}
		again, err := DecodeEnvelope(EncodeEnvelope(e.Subject, e.Type, e.ID, e.Data))
		if err != nil || again.Subject != e.Subject || again.Type != e.Type || again.ID != e.ID ||
			!bytes.Equal(again.Data, e.Data) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}
