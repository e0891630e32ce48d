package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"

	"heeler.dev/agent-go/internal/agent"
	"heeler.dev/agent-go/internal/kmsg"
	"heeler.dev/schemas/go/heelerv1"
)

const longestInput = 1<<20 + 1<<10

// parseKmsg turns kernel log lines in any form into events, one JSON object a line.
func parseKmsg(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("heeler-agent parse kmsg", flag.ContinueOnError)
	flags.SetOutput(stderr)
	anyFacility := flags.Bool("any-facility", false, "take lines that the kernel did not write, as not trusted")
	cluster := flags.String("cluster", "offline", "cluster `name` in the events")
	node := flags.String("node", "offline", "node `name` in the events")
	boot := flags.String("boot", "offline", "boot `id` in the events")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return misused("parse kmsg: unexpected argument %q; the log is read from standard input", flags.Arg(0))
	}
	out := bufio.NewWriter(stdout)
	c := converter{
		stream: kmsg.NewStream(*anyFacility), out: out,
		header: heelerv1.Header{V: heelerv1.Version, Cluster: *cluster, Node: *node, Boot: *boot},
	}
	err := c.lines(stdin)
	err = errors.Join(err, c.write(c.stream.Flush()), out.Flush())
	n := c.stream.Counts
	fmt.Fprintf(stderr, "lines %d, events %d, unmatched %d, not from the kernel %d, unreadable %d\n",
		n.Lines, c.written, n.Unmatched, n.Foreign, n.Unreadable)
	return err
}

type converter struct {
	stream  *kmsg.Stream
	out     *bufio.Writer
	header  heelerv1.Header
	written int
}

// lines takes the input a line at a time. Of a line that is too long only the beginning is looked at: no record of a
// kernel log is, and one that is must not end the reading of the others.
func (c *converter) lines(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		if len(line) < longestInput {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err := c.write(c.stream.Line(string(line))); err != nil {
			return err
		}
		line = line[:0]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *converter) write(events []*heelerv1.KernelEvent) error {
	for _, m := range events {
		ts, seq := m.TS, m.Seq
		m.Header = c.header
		m.TS, m.Seq = ts, seq
		text, err := agent.ToJSON(m)
		if err != nil {
			return err
		}
		c.written++
		if _, err := c.out.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}
