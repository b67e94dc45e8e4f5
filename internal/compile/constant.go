package compile

// Constant returns the value of an expression of numbers, and false for any other expression. Casts
// to types of less than 8 bytes are not evaluated, except of values that they do not change.
func Constant(e Expr) (int64, bool) {
	switch e := e.(type) {
	case *numberExpr:
		return int64(e.value), true
	case *castExpr:
		n, ok := Constant(e.x)
		return n, ok && n >= 0 && n < 1<<31 && e.to.pointers == 0
	case *unaryExpr:
		n, ok := Constant(e.x)
		switch e.op {
		case "~":
			return ^n, ok
		case "-":
			return -n, ok
		}
	case *binaryExpr:
		x, okX := Constant(e.x)
		y, okY := Constant(e.y)
		n, ok := constantOf(e.op, x, y)
		return n, ok && okX && okY
	}
	return 0, false
}

func constantOf(op string, x, y int64) (int64, bool) {
	switch op {
	case "|":
		return x | y, true
	case "&":
		return x & y, true
	case "^":
		return x ^ y, true
	case "+":
		return x + y, true
	case "-":
		return x - y, true
	case "*":
		return x * y, true
	case "<<":
		return x << uint64(y), y >= 0 && y < 64
	case ">>":
		return x >> uint64(y), y >= 0 && y < 64
	}
	return 0, false
}
