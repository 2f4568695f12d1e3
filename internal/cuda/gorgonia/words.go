package gorgonia

import (
	"encoding/binary"
	"fmt"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
)

// words cuts a kernel's arguments into the 8-byte words that gorgonia.org/cu
// copies, one for each argument it is given, side by side. The driver takes the
// address of each word for that of a parameter and reads as many bytes as the
// parameter has, so that a structure may take several words if no parameter
// follows it.
func words(args *driver.Args) ([]uint64, error) {
	var out []uint64
	for i := range args.Len() {
		b := args.Bytes(i)
		if len(b) > 8 && i < args.Len()-1 {
			return nil, fmt.Errorf("parameter %d of %d has %d bytes; gorgonia.org/cu passes 8 of any but the last", i, args.Len(), len(b))
		}
		for len(b) > 0 {
			var w [8]byte
			b = b[copy(w[:], b):]
			out = append(out, binary.NativeEndian.Uint64(w[:]))
		}
	}
	return out, nil
}
