package nvtx

import "unsafe"

// at is n bytes at an address outside the Go heap.
func at(p uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}
