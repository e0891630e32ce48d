package gpu

import (
	"heeler.dev/agent-go/internal/nvml"
	"heeler.dev/agent-go/internal/pci"
	"heeler.dev/schemas/go/heelerv1"
)

// mostLinks is more than any GPU has; the driver says where its links end.
const mostLinks = 36

// linkState is one link at the end of a window.
type linkState struct {
	link     int
	up       *bool
	counters map[string]heelerv1.Value // those above zero
	unread   bool                      // it is up, and its counters could not be read
}

// remarkable tells whether there is anything to say of a link.
func (l *linkState) remarkable() bool { return l.up == nil || !*l.up || l.unread || l.counted() }

// counted tells whether it has counted anything; a bit error rate alone is nothing to speak of.
func (l *linkState) counted() bool {
	for name := range l.counters {
		if name != shortName(nvlinkEffectiveBER) && name != shortName(nvlinkSymbolBER) {
			return true
		}
	}
	return false
}

const linkPrefix = "nvlink_"

// shortName is a column's name without nvlink_.
func shortName(c column) string { return names[c][len(linkPrefix):] }

// newCounters are what each link of the fifth generation counts.
var newCounters = [...]struct {
	id nvml.FieldID
	c  column
}{
	{nvml.FieldLinkMalformed, nvlinkMalformedPackets},
	{nvml.FieldLinkOverruns, nvlinkBufferOverruns},
	{nvml.FieldLinkReceiveErrors, nvlinkReceiveErrors},
	{nvml.FieldLinkRemoteErrors, nvlinkRemoteErrors},
	{nvml.FieldLinkGeneralErrors, nvlinkGeneralErrors},
	{nvml.FieldLinkIntegrityErrors, nvlinkIntegrityErrors},
	{nvml.FieldLinkXmitDiscards, nvlinkXmitDiscards},
	{nvml.FieldLinkRecoveriesOK, nvlinkRecoveriesOK},
	{nvml.FieldLinkRecoveriesFailed, nvlinkRecoveriesFailed},
	{nvml.FieldLinkRecoveryEvents, nvlinkRecoveryEvents},
	{nvml.FieldLinkEffectiveErrors, nvlinkEffectiveErrors},
	{nvml.FieldLinkSymbolErrors, nvlinkSymbolErrors},
	{nvml.FieldLinkEffectiveBER, nvlinkEffectiveBER},
	{nvml.FieldLinkSymbolBER, nvlinkSymbolBER},
}

// oldCounters are what each link of the generations before counts.
var oldCounters = [...]struct {
	c     column
	kinds []nvml.LinkError
	id    nvml.FieldID // the same as a field
}{
	{nvlinkCRCErrors, []nvml.LinkError{nvml.LinkCRCFlit, nvml.LinkCRCData}, nvml.FieldLinkCRC},
	{nvlinkReplayErrors, []nvml.LinkError{nvml.LinkReplay}, nvml.FieldLinkReplay},
	{nvlinkRecoveryErrors, []nvml.LinkError{nvml.LinkRecovery}, nvml.FieldLinkRecovery},
}

// links reads the NVLinks of a GPU.
type links struct {
	numbers []int // of the links that there are
	look    rest  // for links, where none were found
	calls   rest  // of the counters of single links
	modern  asker // the new counters, link by link
	fields  asker // the old counters as fields, link by link
	traffic asker // bytes sent and received, link by link
	states  []linkState
	first   nvml.Status // how the first link answered
}

// read looks at all links. totals are the old counters of all links together.
func (l *links) read(d nvml.Device, totals []nvml.Field, count nvml.Field, put put) []linkState {
	if len(l.numbers) == 0 {
		l.find(d)
	}
	if len(l.numbers) == 0 {
		l.none(put)
		return nil
	}
	l.readStates(d, put)
	if count.Status.Lacking() {
		count.Value, count.Status = uint64(len(l.numbers)), nvml.OK
	}
	put(nvlinkLinks, heelerv1.UintValue(count.Value), count.Status)
	l.readModern(d, put)
	l.readOld(d, totals, put)
	return l.remarkable()
}

// find asks for each link whether it is there.
func (l *links) find(d nvml.Device) {
	if !l.look.over() {
		return
	}
	answered := false
	for link := range mostLinks {
		_, s := d.NVLinkUp(link)
		if link == 0 {
			l.first = s
		}
		if s == nvml.InvalidArgument || s == nvml.Lost {
			break
		}
		if s.Lacking() {
			continue
		}
		l.numbers = append(l.numbers, link)
		answered = answered || s == nvml.OK
	}
	if !answered { // how many there are isn't known
		l.numbers = nil
	}
	l.look.heard(len(l.numbers) == 0)
	for _, link := range l.numbers {
		for _, c := range newCounters {
			l.modern.add(c.id, uint32(link))
		}
		for _, c := range oldCounters {
			l.fields.add(c.id, uint32(link))
		}
		l.traffic.add(nvml.FieldLinkTxBytes, uint32(link))
		l.traffic.add(nvml.FieldLinkRxBytes, uint32(link))
	}
}

// bytes adds up, in KiB, what the links of the fifth generation have carried.
func (l *links) bytes(d nvml.Device, tx, rx *nvml.Field) {
	if len(l.numbers) == 0 {
		return
	}
	l.traffic.ask(d)
	for k, to := range []*nvml.Field{tx, rx} {
		sum := nvml.Field{Wide: true, Status: nvml.OK}
		for i := k; i < len(l.traffic.fields); i += 2 {
			f := &l.traffic.fields[i]
			if f.Status != nvml.OK {
				sum.Status = f.Status
			}
			sum.Value += f.Value
		}
		to.Value, to.Wide, to.Status = sum.Value/kib, sum.Wide, sum.Status
	}
}

// none says why there is nothing to tell.
func (l *links) none(put put) {
	why := l.first
	if why == nvml.OK || why == nvml.InvalidArgument {
		why = nvml.NotSupported
	}
	put(nvlinkLinks, heelerv1.Value{}, why)
	put(nvlinkLinksUp, heelerv1.Value{}, why)
	for _, c := range newCounters {
		put(c.c, heelerv1.Value{}, why)
	}
	for _, c := range oldCounters {
		put(c.c, heelerv1.Value{}, why)
	}
}

// readStates says how many links are up, if that can be said of each.
func (l *links) readStates(d nvml.Device, put put) {
	l.states = make([]linkState, len(l.numbers))
	up, failed := uint64(0), nvml.OK
	for i, link := range l.numbers {
		l.states[i].link = link
		on, s := d.NVLinkUp(link)
		if s != nvml.OK {
			failed = s
			continue
		}
		l.states[i].up = &on
		if on {
			up++
		}
	}
	put(nvlinkLinksUp, heelerv1.UintValue(up), failed)
}

// tally adds up what the links count. One link that is up and cannot be read makes the sum unknown: it would seem to
// fall. A link that is down may have no counters.
type tally struct {
	sum    uint64
	worst  float64
	read   int
	failed nvml.Status
	lacked nvml.Status
}

// readModern reads the counters of the fifth generation.
func (l *links) readModern(d nvml.Device, put put) {
	l.modern.ask(d)
	for k, c := range newCounters {
		var t tally
		for i := range l.states {
			f := &l.modern.fields[i*len(newCounters)+k]
			l.count(i, c.c, f.Value, f.Status, &t)
		}
		t.put(c.c, put)
	}
}

// count takes one counter of one link.
func (l *links) count(i int, c column, v uint64, s nvml.Status, t *tally) {
	state := &l.states[i]
	switch {
	case s.Lacking():
		t.lacked = s
	case s != nvml.OK && state.up != nil && !*state.up:
	case s != nvml.OK:
		t.failed, state.unread = s, true
	default:
		value := heelerv1.UintValue(v)
		if c == nvlinkEffectiveBER || c == nvlinkSymbolBER {
			rate := nvml.BER(v)
			t.worst, value = max(t.worst, rate), heelerv1.FloatValue(rate)
		}
		t.read++
		t.sum += v
		if f, _ := value.Float(); f > 0 {
			state.set(c, value)
		}
	}
}

func (l *linkState) set(c column, v heelerv1.Value) {
	if l.counters == nil {
		l.counters = map[string]heelerv1.Value{}
	}
	l.counters[shortName(c)] = v
}

func (t *tally) put(c column, put put) {
	switch {
	case t.failed != nvml.OK:
		put(c, heelerv1.Value{}, t.failed)
	case t.read == 0 && t.lacked != nvml.OK:
		put(c, heelerv1.Value{}, t.lacked)
	case t.read == 0:
		put(c, heelerv1.Value{}, nvml.Unread)
	case c == nvlinkEffectiveBER || c == nvlinkSymbolBER:
		put(c, heelerv1.FloatValue(t.worst), nvml.OK)
	default:
		put(c, heelerv1.UintValue(t.sum), nvml.OK)
	}
}

// readOld reads the counters of the older generations. Single links are asked only when the totals have counted
// something, or can't be had.
func (l *links) readOld(d nvml.Device, totals []nvml.Field, put put) {
	crc, crcStatus := sum(totals[windowCRCFlit], totals[windowCRCData])
	all := [len(oldCounters)]nvml.Field{
		{Value: crc, Status: crcStatus}, totals[windowReplay], totals[windowRecovery],
	}
	clean := true
	for _, f := range all {
		clean = clean && f.Status == nvml.OK && f.Value == 0
	}
	var tallies [len(oldCounters)]tally
	if !clean {
		l.readSingle(d, &tallies)
	}
	for k, c := range oldCounters {
		if all[k].Status == nvml.OK {
			put(c.c, heelerv1.UintValue(all[k].Value), nvml.OK)
		} else {
			tallies[k].put(c.c, put)
		}
	}
}

// readSingle asks the links one by one, by the call made for it or else by field.
func (l *links) readSingle(d nvml.Device, tallies *[len(oldCounters)]tally) {
	if l.calls.over() {
		lacks := true
		for i := range l.states {
			for k, c := range oldCounters {
				v, s := errorsOf(d, l.states[i].link, c.kinds)
				lacks = lacks && s.Lacking()
				l.count(i, c.c, v, s, &tallies[k])
			}
		}
		if l.calls.heard(lacks); !lacks {
			return
		}
	}
	l.fields.ask(d)
	for i := range l.states {
		for k, c := range oldCounters {
			f := &l.fields.fields[i*len(oldCounters)+k]
			l.count(i, c.c, f.Value, f.Status, &tallies[k])
		}
	}
}

func errorsOf(d nvml.Device, link int, kinds []nvml.LinkError) (uint64, nvml.Status) {
	var total nvml.Field
	for i, kind := range kinds {
		v, s := d.NVLinkErrors(link, kind)
		if i == 0 {
			total = nvml.Field{Value: v, Status: s}
			continue
		}
		total.Value, total.Status = sum(total, nvml.Field{Value: v, Status: s})
	}
	return total.Value, total.Status
}

// sum adds two counters. One of them is enough where the GPU lacks the other.
func sum(a, b nvml.Field) (uint64, nvml.Status) {
	switch {
	case a.Status.Lacking():
		return b.Value, b.Status
	case b.Status.Lacking():
		return a.Value, a.Status
	case a.Status != nvml.OK:
		return 0, a.Status
	case b.Status != nvml.OK:
		return 0, b.Status
	default:
		return a.Value + b.Value, nvml.OK
	}
}

func (l *links) remarkable() []linkState {
	var some []linkState
	for i := range l.states {
		if l.states[i].remarkable() {
			some = append(some, l.states[i])
		}
	}
	return some
}

// linkEnds says what the links of a GPU lead to.
func linkEnds(d nvml.Device) []heelerv1.NVLink {
	var all []heelerv1.NVLink
	for link := range mostLinks {
		_, s := d.NVLinkUp(link)
		if s == nvml.InvalidArgument || s == nvml.Lost {
			break
		}
		if s.Lacking() {
			continue
		}
		end := heelerv1.NVLink{Link: uint64(link)}
		if version, s := d.NVLinkVersion(link); s == nvml.OK {
			end.Version = &version
		}
		if address, s := d.NVLinkRemotePCI(link); s == nvml.OK {
			end.RemotePCI, _ = pci.Normalise(address)
		}
		if kind, s := d.NVLinkRemoteType(link); s == nvml.OK {
			end.RemoteType = kind
		}
		all = append(all, end)
	}
	return all
}
