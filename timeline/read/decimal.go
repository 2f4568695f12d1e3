package read

// limitNs is how far from 0 a time may lie, so that differences of times are
// exact; that is 146 years.
const limitNs = 1 << 62

// microsToNs reads a decimal number of microseconds as nanoseconds. What is
// below a nanosecond is dropped, towards zero: a float64 would do worse, having
// steps of 250 ns at today's Unix time. False: not a number, or out of range.
func microsToNs(b []byte) (ns int64, ok bool) {
	i, negative := 0, false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		i++
	}
	// With the decimal point at digit p, the value is digits x 10^(exponent).
	var v uint64
	digits, places, point := 0, 0, false
	for ; i < len(b); i++ {
		c := b[i]
		if c == '.' && !point {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if point {
			if places == 3 {
				continue // below a nanosecond, unless an exponent follows
			}
			places++
		}
		if v > (1<<63)/10 {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	if digits == 0 {
		return 0, false
	}
	if i < len(b) {
		if b[i] != 'e' && b[i] != 'E' {
			return 0, false
		}
		return scientific(b)
	}
	for ; places < 3; places++ {
		if v > limitNs/10 {
			return 0, false
		}
		v *= 10
	}
	if v >= limitNs {
		return 0, false
	}
	if negative {
		return -int64(v), true
	}
	return int64(v), true
}

// scientific is microsToNs for a number with an exponent.
func scientific(b []byte) (ns int64, ok bool) {
	i, negative := 0, false
	if b[0] == '-' || b[0] == '+' {
		negative = b[0] == '-'
		i++
	}
	var digits []byte
	exponent, point := 3, false // microseconds to nanoseconds
	for ; i < len(b) && b[i] != 'e' && b[i] != 'E'; i++ {
		switch c := b[i]; {
		case c == '.' && !point:
			point = true
		case c >= '0' && c <= '9':
			digits = append(digits, c-'0')
			if point {
				exponent--
			}
		default:
			return 0, false
		}
	}
	if i++; i >= len(b) {
		return 0, false
	}
	sign := 1
	if b[i] == '-' || b[i] == '+' {
		if b[i] == '-' {
			sign = -1
		}
		i++
	}
	if i >= len(b) {
		return 0, false
	}
	e := 0
	for ; i < len(b); i++ {
		if b[i] < '0' || b[i] > '9' {
			return 0, false
		}
		e = min(e*10+int(b[i]-'0'), 1<<20)
	}
	exponent += sign * e
	if exponent < 0 { // what is below a nanosecond
		digits = digits[:max(0, len(digits)+exponent)]
		exponent = 0
	}
	var v uint64
	times10 := func(d byte) bool {
		if v >= limitNs/10 {
			return false
		}
		v = v*10 + uint64(d)
		return true
	}
	for _, d := range digits {
		if !times10(d) {
			return 0, false
		}
	}
	for ; exponent > 0 && v > 0; exponent-- {
		if !times10(0) {
			return 0, false
		}
	}
	if negative {
		return -int64(v), true
	}
	return int64(v), true
}
