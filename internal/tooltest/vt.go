package tooltest

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// vt is a terminal emulator with the functions that package screen needs: cursor movement, erasing,
// scrolling, and the alternate screen of xterm.
type vt struct {
	width, height int
	x, y          int
	lines, other  [][]rune
	isOther       bool   // the alternate screen is displayed
	rest          []byte // start of an incomplete sequence
}

func newVT(width, height int) *vt {
	v := &vt{width: width, height: height}
	v.lines, v.other = v.blank(), v.blank()
	return v
}

func (v *vt) blank() [][]rune {
	lines := make([][]rune, v.height)
	for y := range lines {
		lines[y] = []rune(strings.Repeat(" ", v.width))
	}
	return lines
}

// resize clears both screens, because programs must redraw them after a change of size.
func (v *vt) resize(width, height int) {
	v.width, v.height, v.x, v.y = width, height, 0, 0
	v.lines, v.other = v.blank(), v.blank()
}

// text returns the lines without trailing spaces.
func (v *vt) text() []string {
	var out []string
	for _, line := range v.lines {
		out = append(out, strings.TrimRight(string(line), " "))
	}
	return out
}

// Write processes all complete sequences of b and keeps the rest for the next call.
func (v *vt) Write(b []byte) (int, error) {
	v.rest = append(v.rest, b...)
	for len(v.rest) > 0 {
		n := v.process(v.rest)
		if n == 0 {
			break
		}
		v.rest = v.rest[n:]
	}
	return len(b), nil
}

// process processes one character or sequence and returns its length, 0 if it is incomplete.
func (v *vt) process(b []byte) int {
	switch b[0] {
	case 0x1b:
		return v.escape(b)
	case '\r':
		v.x = 0
	case '\n':
		v.newline()
	case '\b':
		v.x = max(v.x-1, 0)
	case 0x07, 0x0e, 0x0f:
	default:
		return v.put(b)
	}
	return 1
}

func (v *vt) put(b []byte) int {
	if !utf8.FullRune(b) {
		return 0
	}
	r, n := utf8.DecodeRune(b)
	if v.x < v.width && v.y < v.height {
		v.lines[v.y][v.x] = r
		v.x++
	}
	return n
}

func (v *vt) newline() {
	if v.y++; v.y < v.height {
		return
	}
	v.y = v.height - 1
	v.lines = append(v.lines[1:], []rune(strings.Repeat(" ", v.width)))
}

func (v *vt) escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '[':
		end := bytes.IndexFunc(b[2:], func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			return 0
		}
		v.control(string(b[2:2+end]), b[2+end])
		return end + 3
	case ']', 'P':
		if end := bytes.IndexAny(b, "\a\\"); end > 0 {
			return end + 1
		}
		return 0
	case '(', ')':
		if len(b) < 3 {
			return 0
		}
		return 3
	}
	return 2
}

func (v *vt) control(args string, final byte) {
	var n []int
	for s := range strings.SplitSeq(args, ";") {
		i, _ := strconv.Atoi(s)
		n = append(n, i)
	}
	n = append(n, 0)
	switch final {
	case 'H':
		v.y, v.x = min(max(n[0], 1), v.height)-1, min(max(n[1], 1), v.width)-1
	case 'C':
		v.x = min(v.x+max(n[0], 1), v.width-1)
	case 'J':
		v.lines = v.blank()
	case 'K':
		for x := v.x; x < v.width; x++ {
			v.lines[v.y][x] = ' '
		}
	case 'h', 'l':
		if args == "?1049" && v.isOther != (final == 'h') {
			v.isOther = !v.isOther
			v.lines, v.other = v.other, v.lines
		}
	}
}
