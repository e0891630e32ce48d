package bus

import (
	"github.com/tinylib/msgp/msgp"
)

// Envelope is a message with where it goes, as the spool keeps it.
type Envelope struct {
	Subject string
	Type    string
	ID      string
	Data    []byte
}

// EncodeEnvelope makes the spool's record of an event.
func EncodeEnvelope(subject, typeHeader, id string, data []byte) []byte {
	b := make([]byte, 0, len(subject)+len(typeHeader)+len(id)+len(data)+16)
	b = msgp.AppendArrayHeader(b, 4)
	b = msgp.AppendString(b, subject)
	b = msgp.AppendString(b, typeHeader)
	b = msgp.AppendString(b, id)
	return msgp.AppendBytes(b, data)
}

// DecodeEnvelope reads the spool's record of an event.
func DecodeEnvelope(b []byte) (Envelope, error) {
	var e Envelope
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return e, err
	}
	if n != 4 {
		return e, msgp.ArrayError{Wanted: 4, Got: n}
	}
	for _, field := range []*string{&e.Subject, &e.Type, &e.ID} {
		if *field, b, err = msgp.ReadStringBytes(b); err != nil {
			return e, err
		}
	}
	e.Data, _, err = msgp.ReadBytesBytes(b, nil)
	return e, err
}
