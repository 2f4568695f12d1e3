package read

import (
	"math/big"
	"testing"
)

func TestMicrosToNs(t *testing.T) {
	for _, test := range []struct {
		text string
		ns   int64
		ok   bool
	}{
		{"0", 0, true}, {"1", 1000, true}, {"1.5", 1500, true}, {"1623142623460172", 1623142623460172000, true},
		{"1414456661601.577", 1414456661601577, true}, {"1414456661601.5779", 1414456661601577, true}, {"0.0009", 0, true},
		{"-1.0019", -1001, true}, {"2413669096090.1", 2413669096090100, true}, {"+3", 3000, true}, {"007", 7000, true},
		{"1e3", 1000000, true}, {"1.5e-3", 1, true}, {"1.9999e-3", 1, true}, {"1E+2", 100000, true}, {"123456e-5", 1234, true},
		{"9e-400", 0, true}, {"0e999999999", 0, true}, {"1.", 1000, true}, {".5", 500, true},
		{"4611686018427387.903", 4611686018427387903, true}, {"4611686018427387.904", 0, false}, {"-4611686018427387.903", -4611686018427387903, true},
		{"1e300", 0, false}, {"99999999999999999999", 0, false}, {"", 0, false}, {"-", 0, false}, {"x", 0, false}, {"1.2.3", 0, false}, {"1e", 0, false}, {"1ex", 0, false}, {".", 0, false},
	} {
		if ns, ok := microsToNs([]byte(test.text)); ns != test.ns || ok != test.ok {
			t.Errorf("%q is %d, %v; want %d, %v", test.text, ns, ok, test.ns, test.ok)
		}
	}
}

// FuzzMicrosToNs is against math/big's rational numbers.
func FuzzMicrosToNs(f *testing.F) {
	for _, s := range []string{"1.5", "-1e-3", "1623142623460172.001", "4611686018427387.904e0", "12e5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 40 || len(s) == 0 || !isNumber([]byte(s)) {
			return
		}
		ns, ok := microsToNs([]byte(s))
		var r big.Rat
		if len(s) > 4 && (s[len(s)-3] != 'e' && s[len(s)-2] != 'e') {
			for _, c := range s {
				if c == 'e' || c == 'E' {
					return // exponents beyond two digits take math/big for ever
				}
			}
		}
		if _, fine := r.SetString(s); !fine {
			t.Fatalf("%q is no number for math/big", s)
		}
		r.Mul(&r, big.NewRat(1000, 1))
		want := new(big.Int).Quo(r.Num(), r.Denom())
		inRange := want.IsInt64() && want.Int64() < limitNs && want.Int64() > -limitNs
		if ok != inRange || ok && want.Int64() != ns {
			t.Errorf("%q is %d, %v; want %v", s, ns, ok, want)
		}
	})
}
