package dcgm

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestValuesThatStandForNoneAreNoNumbers(t *testing.T) {
	for text, want := range map[string]Cell{
		"2147483631": {Value: 2147483631}, "2147483632": {Kind: Blank}, "2147483633": {Kind: NotFound},
		"2147483634": {Kind: NotSupported}, "2147483635": {Kind: NoPermission}, "2147483647": {Kind: Blank},
		"2147483648": {Value: 2147483648}, "2147483632.000": {Kind: Blank},
		"9223372036854775791": {Value: 9223372036854775791}, "9223372036854775792": {Kind: Blank},
		"9223372036854775793": {Kind: NotFound}, "9223372036854775794": {Kind: NotSupported},
		"9223372036854775795": {Kind: NoPermission}, "9223372036854775807": {Kind: Blank},
		"140737488355327.000": {Value: 140737488355327}, "140737488355328.000": {Kind: Blank},
		"140737488355329.0": {Kind: NotFound}, "140737488355330.0": {Kind: NotSupported},
		"140737488355331.0": {Kind: NoPermission}, "140737488355399.0": {Kind: Blank}, "1.4e14": {Value: 1.4e14},
		"1.5e14": {Kind: Blank}, "140737488355328": {Value: 140737488355328}, // an integer's own values for none are larger
		"<<<NULL>>>": {Kind: Blank}, "<<<NOT_SUPPORTED>>>": {Kind: NotSupported}, "<<<NOT_FOUND>>>": {Kind: NotFound},
		"<<<NOT_PERM>>>": {Kind: NoPermission}, "N/A": {Kind: Blank}, "nan": {Kind: NotANumber},
		"-nan": {Kind: NotANumber}, "inf": {Kind: NotANumber}, "0.512": {Value: 0.512}, "0": {}, "-1": {Value: -1},
		"12345...": {Kind: Cut}, "<<<NOT_SUP...": {Kind: Cut},
	} {
		if got, ok := parseCell(text); !ok || got != want {
			t.Errorf("%s: got %+v, %v, not %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"0x1p-2", "1_000", "0.5%", "ERR", "1.2.3", "--", "0,5", "1e999"} {
		if got, ok := parseCell(text); ok {
			t.Errorf("%s was taken for %+v", text, got)
		}
	}
}

func TestEntities(t *testing.T) {
	for text, want := range map[string]Entity{
		"GPU 0": {Group: "GPU"}, "GPU-I 3": {Group: "GPU-I", ID: 3}, "GPU-CI 2": {Group: "GPU-CI", ID: 2},
		"GPU 0 LINK 3": {Group: "GPU", Link: 3, HasLink: true}, "SW 1 LINK 7": {"SWITCH", 1, 7, true},
		"Switch 11": {Group: "SWITCH", ID: 11}, "LINK 66819": {Group: "LINK", ID: 66819},
		"CPU Core 5": {Group: "CPU Core", ID: 5}, "CX 1": {Group: "CX", ID: 1},
	} {
		p := Parser{Fields: 2}
		_, _, _ = p.Line("#Entity   SMACT   DRAMA")
		verdict, row, err := p.Line(text + "   0.512   N/A")
		if verdict != IsRow || err != nil || row.Entity != want ||
			!reflect.DeepEqual(row.Cells, []Cell{{Value: 0.512}, {Kind: Blank}}) {
			t.Errorf("%s: %v %+v %v", text, verdict, row, err)
		}
	}
}

// left writes a line as DCGM 3 and 4 do, padded.
func left(cells ...string) string {
	line := cells[0] + strings.Repeat(" ", max(0, 11-len(cells[0])))
	for _, c := range cells[1:] {
		line += c + strings.Repeat(" ", max(0, 14-len(c)))
	}
	return line
}

func TestBothStylesOfTheTable(t *testing.T) {
	for name, lines := range map[string][]string{
		"to the left": {left("#Entity", "GRACT", "SMACT"), left("ID", "", ""), left("GPU 0", "0.500", "0.250")},
		"to the right, as DCGM 2": {
			" # Entity       GRACT       SMACT", "      Id                          ", "    GPU 0       0.500       0.250",
		},
		"header again": {
			left("#Entity", "GRACT", "SMACT"), left("ID", "", ""), left("#Entity", "GRACT", "SMACT"), left("ID", "%", "%"),
			left("GPU 0", "0.500", "0.250"),
		},
	} {
		p := Parser{Fields: 2}
		var rows []Row
		for _, line := range lines {
			verdict, row, err := p.Line(line)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if verdict == IsRow {
				rows = append(rows, row)
			}
		}
		want := []Row{{Entity{Group: "GPU"}, []Cell{{Value: 0.5}, {Value: 0.25}}}}
		if !reflect.DeepEqual(rows, want) {
			t.Errorf("%s: got %+v", name, rows)
		}
	}
}

func TestARowOfAnotherLengthIsDroppedWhole(t *testing.T) {
	p := Parser{Fields: 3}
	_, _, _ = p.Line(left("#Entity", "GRACT", "SMACT", "SMOCC"))
	for _, line := range []string{
		"GPU 0      0.500", "GPU 0      0.500  0.250  0.125  0.1", "GPU 0", "GPU", "GPU x  1 2 3", "GPU 0  1 2 x",
		"GPU-CI 12340.123   0.5  0.5", "GPU 0 LINK", "GPU 99999999999  1 2 3",
	} {
		verdict, row, err := p.Line(line)
		var bad *RowError
		if verdict == IsRow || !errors.As(err, &bad) || row.Cells != nil {
			t.Errorf("%q: %v %+v %v", line, verdict, row, err)
		}
	}
	if verdict, _, err := p.Line(left("GPU 0", "1.000", "2.000", "3.000")); verdict != IsRow || err != nil {
		t.Errorf("the next row is not read: %v", err)
	}
}

func TestCellsThatDCGM4LeavesEmptyAreBlank(t *testing.T) {
	p := Parser{Fields: 3}
	_, _, _ = p.Line(left("#Entity", "GRACT", "SMACT", "SMOCC"))
	verdict, row, err := p.Line(left("GPU 0", "0.500", "", "0.125"))
	if verdict != IsRow || err != nil || !reflect.DeepEqual(row.Cells, []Cell{{Value: 0.5}, {Kind: Blank}, {Value: 0.125}}) {
		t.Errorf("got %v %+v %v", verdict, row, err)
	}
	if _, row, err := p.Line(strings.TrimRight(left("GPU 0", "0.500", "", "0.125"), " ")); err == nil {
		t.Errorf("a line that may have been cut gave %+v", row)
	}
}

func TestAnEntityThatTouchesItsFirstValueIsToldApart(t *testing.T) {
	p := Parser{Fields: 2}
	_, _, _ = p.Line(left("#Entity", "LNKST", "CRC"))
	verdict, row, err := p.Line(left("LINK 131075", "2", "7"))
	want := Row{Entity{Group: "LINK", ID: 131075}, []Cell{{Value: 2}, {Value: 7}}}
	if verdict != IsRow || err != nil || !reflect.DeepEqual(row, want) {
		t.Errorf("got %v %+v %v", verdict, row, err)
	}
	if verdict, row, _ := p.Line(left("LINK 1048579", "2", "7")); verdict == IsRow { // too wide: everything has moved
		t.Errorf("got %+v", row)
	}
}

func TestAHeaderOfOtherColumnsStopsTheRows(t *testing.T) {
	p := Parser{Fields: 2}
	if _, _, err := p.Line("GPU 0  1  2"); err == nil {
		t.Error("a row before any header was taken")
	}
	if _, _, err := p.Line("#Entity  SMACT"); err == nil {
		t.Error("a header of one column was taken")
	}
	if verdict, _, _ := p.Line("GPU 0  1  2"); verdict == IsRow {
		t.Error("a row below a strange header was taken")
	}
	_, _, _ = p.Line("#Entity  SMACT  DRAMA")
	if verdict, _, _ := p.Line("GPU 0  1  2"); verdict != IsRow {
		t.Error("a row below a right header was not taken")
	}
}

func TestMessagesAreNoRows(t *testing.T) {
	p := Parser{Fields: 1}
	_, _, _ = p.Line("#Entity  SMACT")
	for _, line := range []string{
		"Error setting watches. Result: The third-party Profiling module returned an unrecoverable error",
		"dmon was stopped due to receiving a signal.",
	} {
		if verdict, _, err := p.Line(line); verdict != IsMessage || err != nil {
			t.Errorf("%s: %v %v", line, verdict, err)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, line := range []string{
		left("#Entity", "A", "B"), "# Entity  A  B", "ID", left("GPU 0", "0.5", "1"), left("GPU 0", "", "1"), "GPU 0 LINK 3 1 2",
		left("LINK 131075", "2", "7"), "GPU-I 3  N/A  <<<NULL>>>", "Error", "", "GPU 0 nan 2147483634", "CPU Core 1 1 1",
		"#Entity \u00a0A B", "#A B C",
	} {
		f.Add(line, line)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		p := Parser{Fields: 2}
		_, _, _ = p.Line(left("#Entity", "A", "B"))
		for _, line := range []string{first, second, left("GPU 1", "1", "2")} {
			verdict, row, err := p.Line(line)
			if verdict != IsRow {
				if row.Cells != nil {
					t.Fatalf("half a row: %+v", row)
				}
				continue
			}
			if err != nil || len(row.Cells) != 2 || row.Entity.Group == "" {
				t.Fatalf("%q gave %+v, %v", line, row, err)
			}
			for _, c := range row.Cells {
				if math.IsNaN(c.Value) || math.IsInf(c.Value, 0) || c.Kind != Number && c.Value != 0 {
					t.Fatalf("%q gave %+v", line, c)
				}
			}
		}
	})
}
