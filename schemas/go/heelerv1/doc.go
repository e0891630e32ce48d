// Package heelerv1 holds the messages that Heeler puts on the bus, version 1, as Go types.
//
// The JSON Schemas beside this module are the contract and the golden vectors are its arbiter; these types follow them.
// A payload is a MessagePack map with string keys. What a writer does not know it leaves out: a pointer that is nil, a
// slice or map that is nil, a string that is empty. Zero is a value and never stands for "not read".
//
// Use [Decode] or [DecodeAs] to read a payload: they refuse what the contract forbids (a required key that is missing, a
// column whose length is not the number of GPUs, NaN), ignore keys they do not know and turn enum values of a newer
// writer into "unknown". Use [Encode] to write one and [Message.Subject] for where it goes.
package heelerv1

//go:generate go tool msgp -file node.go -io=false -tests=false
//go:generate go tool msgp -file health.go -io=false -tests=false
//go:generate go tool msgp -file record.go -io=false -tests=false
//go:generate go tool msgp -file summary.go -io=false -tests=false
//go:generate go tool msgp -file slurm.go -io=false -tests=false
//go:generate go tool msgp -file judge.go -io=false -tests=false
//go:generate go tool msgp -file hand.go -io=false -tests=false
