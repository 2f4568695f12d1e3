//go:build !race

package data

import "unsafe"

//go:noescape
func pastCaches(dst, src *byte, n int)

// copyPast is copy for bytes that the host does not look at again: they go
// around its caches. Feeding a large batch with copy pushed the driver's data
// out of them: on an H200's host a graph launch of 446 nodes took 33 us behind
// 9.6 MB of images, and 7 us without.
func copyPast(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < 1024 {
		return copy(dst, src)
	}
	head := int(-uintptr(unsafe.Pointer(&dst[0])) & 15)
	copy(dst[:head], src)
	body := (n - head) &^ 63
	pastCaches(&dst[head], &src[head], body)
	copy(dst[head+body:n], src[head+body:n])
	return n
}
